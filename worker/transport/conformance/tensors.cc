#include "worker/transport/conformance/tensors.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/prng.h"

namespace lockstep {
namespace {

constexpr int kGuardBytes = 32;

}  // namespace

std::span<std::byte> Tensors::AddEmpty(const std::string& name, DType dtype,
                                       std::vector<std::int64_t> shape) {
  TensorSpec spec = {.name = name, .dtype = dtype, .shape = std::move(shape)};
  const std::int64_t bytes = spec.bytes();
  Bytes data(bytes + kGuardBytes, std::byte{0xab});
  std::fill_n(data.begin(), bytes, std::byte{0});
  storage_.push_back(std::move(data));
  views_.push_back({.spec = std::move(spec), .data = storage_.back().data()});
  return {storage_.back().data(), static_cast<std::size_t>(bytes)};
}

void Tensors::Add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                  std::uint64_t seed) {
  Prng prng(seed * 1000003 + views_.size());
  const std::span<std::byte> data = AddEmpty(name, dtype, std::move(shape));
  for (std::size_t i = 0; i < data.size(); i += 8) {
    std::uint64_t drawn = prng.Next();
    if (dtype == DType::kBool) drawn &= 0x0101010101010101u;
    std::memcpy(&data[i], &drawn, std::min<std::size_t>(8, data.size() - i));
  }
}

void Tensors::AddHard(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                      std::uint64_t seed) {
  const std::uint64_t index = views_.size();
  FillHard(dtype, seed * 1000003 + index, AddEmpty(name, dtype, std::move(shape)));
}

Tensors OneOfEachDType(std::uint64_t seed) {
  Tensors tensors;
  for (const DType dtype : kAllDTypes) {
    tensors.Add(std::string(DTypeName(dtype)), dtype, {3, 7}, seed);
  }
  tensors.Add("scalar", DType::kInt64, {}, seed);
  tensors.Add("empty", DType::kFloat32, {0, 5}, seed);
  return tensors;
}

std::vector<Bytes> ExpectedOf(ReduceOp op, const std::vector<double>& weights,
                              const std::vector<const Tensors*>& ranks) {
  std::vector<Bytes> expected = ranks[0]->bytes();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TensorView& view = ranks[0]->views()[i];
    std::vector<Bytes> sources;
    for (const Tensors* rank : ranks) {
      const std::byte* data = rank->bytes()[i].data();
      sources.emplace_back(data, data + view.bytes());
    }
    const Bytes reduced = NaiveReduce(view.spec.dtype, op, weights, sources);
    std::copy(reduced.begin(), reduced.end(), expected[i].begin());
  }
  return expected;
}

void FillFloats(std::span<float> values, std::uint64_t seed) {
  Prng prng(seed);
  for (float& value : values) {
    constexpr float kScales[] = {1e-4f, 1e-2f, 1, 1e2f, 1e4f};
    value = static_cast<float>(prng.Unit() - 0.5) * kScales[prng.Below(5)];
  }
}

namespace {

// Calls fn with a pointer to the arena's elements.
template <typename Fn>
auto WithElements(const Arena& arena, Fn fn) {
  switch (arena.dtype) {
    case DType::kBfloat16:
      return fn(reinterpret_cast<c10::BFloat16*>(arena.data));
    case DType::kFloat16:
      return fn(reinterpret_cast<c10::Half*>(arena.data));
    default:
      return fn(reinterpret_cast<float*>(arena.data));
  }
}

}  // namespace

void FillArena(const Arena& arena, std::uint64_t seed) {
  std::vector<float> values(arena.elements);
  FillFloats(values, seed);
  for (std::int64_t i = 0; i < arena.elements; ++i) Store(arena, i, values[i]);
}

std::vector<float> ValuesOf(const Arena& arena) {
  return WithElements(arena, [&](const auto* elements) {
    return std::vector<float>(elements, elements + arena.elements);
  });
}

void Store(const Arena& arena, std::int64_t element, float value) {
  WithElements(arena, [&](auto* elements) {
    elements[element] = static_cast<std::remove_pointer_t<decltype(elements)>>(value);
  });
}

std::vector<float> EqualWeights(int world_size) { return std::vector<float>(world_size, 1.0f); }

void Ignore(std::int64_t begin, std::span<const float> sums) {}

ConsumeSums IntoArena(const Arena& arena, const Shard& shard) {
  return [=](std::int64_t begin, std::span<const float> sums) {
    std::copy(sums.begin(), sums.end(), arena.floats().begin() + shard.begin + begin);
  };
}

std::vector<Shard> EvenShards(std::int64_t elements, int world_size) {
  std::vector<Shard> shards;
  for (int r = 0; r < world_size; ++r) {
    shards.push_back({elements * r / world_size / 16 * 16,
                      r + 1 == world_size ? elements
                                          : elements * (r + 1) / world_size / 16 * 16});
  }
  return shards;
}

}  // namespace lockstep
