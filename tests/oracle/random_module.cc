#include "tests/oracle/random_module.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "ATen/ops/_neg_view.h"
#include "ATen/ops/conj.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "torch/nn/module.h"

namespace lockstep {
namespace {

using Sizes = std::vector<std::int64_t>;

at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
      break;
    case DType::kBool:
      return at::ScalarType::Bool;
    case DType::kInt8:
      return at::ScalarType::Char;
    case DType::kInt16:
      return at::ScalarType::Short;
    case DType::kInt32:
      return at::ScalarType::Int;
    case DType::kInt64:
      return at::ScalarType::Long;
    case DType::kUint8:
      return at::ScalarType::Byte;
    case DType::kUint16:
      return at::ScalarType::UInt16;
    case DType::kUint32:
      return at::ScalarType::UInt32;
    case DType::kUint64:
      return at::ScalarType::UInt64;
    case DType::kFloat16:
      return at::ScalarType::Half;
    case DType::kBfloat16:
      return at::ScalarType::BFloat16;
    case DType::kFloat32:
      return at::ScalarType::Float;
    case DType::kFloat64:
      return at::ScalarType::Double;
    case DType::kComplex32:
      return at::ScalarType::ComplexHalf;
    case DType::kComplex64:
      return at::ScalarType::ComplexFloat;
    case DType::kComplex128:
      return at::ScalarType::ComplexDouble;
    case DType::kFloat8E4m3fn:
      return at::ScalarType::Float8_e4m3fn;
    case DType::kFloat8E5m2:
      return at::ScalarType::Float8_e5m2;
    case DType::kFloat8E4m3fnuz:
      return at::ScalarType::Float8_e4m3fnuz;
    case DType::kFloat8E5m2fnuz:
      return at::ScalarType::Float8_e5m2fnuz;
    case DType::kFloat8E8m0fnu:
      return at::ScalarType::Float8_e8m0fnu;
  }
  return at::ScalarType::Undefined;
}

bool IsComplex(DType dtype) {
  return dtype >= DType::kComplex32 && dtype <= DType::kComplex128;
}
// Of whole numbers a copy can turn the sign, but for the unsigned ones above 8 bits.
bool IsSignedInteger(DType dtype) { return dtype >= DType::kInt8 && dtype <= DType::kInt64; }
bool IsIeeeFloat(DType dtype) { return dtype >= DType::kFloat16 && dtype <= DType::kFloat64; }

// Patterns of random policies go by it.
std::string KindOf(DType dtype) {
  if (dtype == DType::kBool) return "flag";
  if (dtype <= DType::kUint64) return "count";
  if (dtype == DType::kFloat8E8m0fnu) return "scale";
  return IsComplex(dtype) ? "complex" : "float";
}

// Calls `visit` with sum(index * stride) for each index, the last dimension first.
template <typename Visit>
void Walk(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
          Visit&& visit, std::int64_t offset = 0) {
  if (sizes.empty()) return visit(offset);
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    Walk(sizes.subspan(1), strides.subspan(1), visit, offset + i * strides[0]);
  }
}

// What the tensor's view makes of an element in memory, and the other way round.
void Turn(const at::Tensor& tensor, std::span<std::byte> element) {
  if (tensor.is_conj() || (tensor.is_neg() && tensor.is_floating_point())) {
    element.back() ^= std::byte{0x80};  // of a complex number: the imaginary part's
  } else if (tensor.is_neg()) {
    bool carry = true;
    for (std::byte& byte : element) {
      const unsigned turned = (std::to_integer<unsigned>(byte) ^ 0xffu) + (carry ? 1 : 0);
      byte = static_cast<std::byte>(turned);
      carry = turned > 0xff;
    }
  }
}

// Calls `visit` with the offset in bytes of each element from the storage's begin.
template <typename Visit>
void WalkElements(const at::Tensor& tensor, Visit&& visit) {
  const auto bytes = static_cast<std::int64_t>(tensor.element_size());
  Walk({tensor.sizes().data(), tensor.sizes().size()},
       {tensor.strides().data(), tensor.strides().size()},
       [&](std::int64_t offset) { visit((tensor.storage_offset() + offset) * bytes); });
}

std::byte* StorageOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.storage().mutable_data());
}

// Such as "block_2.stats_1", with the tree's nodes in the order of registration.
struct Node {
  int parent = -1;
  int depth = 0;
  std::string name;
  std::string path;  // with a dot at the end; empty: the top
};

std::vector<Node> DrawNodes(Prng& prng) {
  constexpr const char* kWords[] = {"block", "stats", "ema", "größe"};
  std::vector<Node> nodes = {Node()};
  const std::int64_t count = prng.Between(0, 7);
  for (std::int64_t i = 1; i <= count; ++i) {
    const auto parent = static_cast<int>(prng.Below(nodes.size()));
    if (nodes[parent].depth == 3) continue;
    const std::string name = absl::StrCat(kWords[prng.Below(std::size(kWords))], "_", i);
    nodes.push_back({.parent = parent,
                     .depth = nodes[parent].depth + 1,
                     .name = name,
                     .path = absl::StrCat(nodes[parent].path, name, ".")});
  }
  return nodes;
}

}  // namespace

Bytes ReadValues(const at::Tensor& tensor, const std::byte* storage) {
  Bytes values;
  const std::size_t size = tensor.element_size();
  WalkElements(tensor, [&](std::int64_t at) {
    values.insert(values.end(), storage + at, storage + at + size);
    Turn(tensor, std::span(values).last(size));
  });
  return values;
}

void WriteValues(const at::Tensor& tensor, const Bytes& values, std::byte* storage) {
  const std::size_t size = tensor.element_size();
  const std::byte* next = values.data();
  WalkElements(tensor, [&](std::int64_t at) {
    std::copy_n(next, size, storage + at);
    Turn(tensor, std::span(storage + at, size));
    next += size;
  });
}

void RandomModule::DrawType(Prng& prng, std::uint64_t pool, Buffer& buffer) {
  do {
    buffer.dtype = kAllDTypes[prng.Below(std::size(kAllDTypes))];
    const bool is_float = buffer.dtype >= DType::kFloat16 && buffer.dtype < DType::kFloat8E8m0fnu;
    if (pool == 0 || is_float == (pool <= 2)) break;
  } while (true);
  const bool has_sign = IsSignedInteger(buffer.dtype) || IsIeeeFloat(buffer.dtype) ||
                        IsComplex(buffer.dtype);
  buffer.may_turn = has_sign && prng.Below(4) == 0;
}

void RandomModule::DrawShape(Prng& prng, Buffer& buffer) {
  buffer.shape.clear();
  buffer.is_repeated.clear();
  if (prng.Below(40) == 0) {
    buffer.shape = {1500};
    buffer.is_repeated = {false};
    return;
  }
  const std::int64_t dimensions = prng.Between(0, 4);
  const bool is_repeated = prng.Below(5) == 0;
  for (std::int64_t i = 0; i < dimensions; ++i) {
    buffer.shape.push_back(prng.Below(15) == 0 ? 0 : prng.Between(1, 5));
    buffer.is_repeated.push_back(is_repeated && prng.Below(2) == 0);
  }
}

Bytes RandomModule::DrawValues(Prng& prng, const Buffer& buffer) {
  Sizes strides(buffer.shape.size());
  std::int64_t distinct = 1;
  for (std::size_t i = buffer.shape.size(); i-- > 0;) {
    strides[i] = buffer.is_repeated[i] ? 0 : distinct;
    if (!buffer.is_repeated[i]) distinct *= buffer.shape[i];
  }
  const int size = ElementBytes(buffer.dtype);
  Bytes drawn(distinct * size);
  FillHard(buffer.dtype, prng.Next(), drawn);
  if (buffer.may_turn && !IsSignedInteger(buffer.dtype)) {
    // Without its highest bit no exponent is that of NaN.
    const std::size_t component = IsComplex(buffer.dtype) ? size / 2 : size;
    for (std::size_t i = component - 1; i < drawn.size(); i += component) {
      drawn[i] &= ~std::byte{0x40};
    }
  }
  Bytes values;
  Walk(buffer.shape, strides, [&](std::int64_t i) {
    values.insert(values.end(), drawn.begin() + i * size, drawn.begin() + (i + 1) * size);
  });
  return values;
}

at::Tensor RandomModule::DrawTensor(Prng& prng, const Buffer& buffer) {
  const auto dimensions = static_cast<std::int64_t>(buffer.shape.size());
  const bool is_plain = prng.Below(3) == 0;
  const bool is_expanded = !is_plain && prng.Below(2) == 0;
  const bool is_sliced = !is_plain && prng.Below(2) == 0;
  const bool is_permuted = !is_plain && prng.Below(2) == 0;

  Sizes sizes = buffer.shape;
  for (std::int64_t i = 0; i < dimensions; ++i) {
    if (is_expanded && buffer.is_repeated[i]) sizes[i] = 1;
  }
  Sizes order(dimensions);  // of the dimensions in memory
  std::iota(order.begin(), order.end(), 0);
  if (is_permuted && dimensions == 4 && prng.Below(2) == 0) {
    order = {0, 2, 3, 1};  // channels last
  } else if (is_permuted) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[prng.Below(i)]);
  }
  Sizes steps(dimensions, 1);
  Sizes starts(dimensions, 0);
  for (std::int64_t i = 0; is_sliced && i < dimensions; ++i) {
    steps[i] = prng.Between(1, 3);
    starts[i] = prng.Between(0, 2);
  }
  Sizes in_memory;
  Sizes places(dimensions);
  for (std::int64_t i = 0; i < dimensions; ++i) {
    in_memory.push_back(starts[order[i]] + steps[order[i]] * sizes[order[i]]);
    places[order[i]] = i;
  }
  // One element more in front, so that a scalar can lie behind the begin as well.
  const std::int64_t skipped = is_sliced ? 1 : 0;
  const std::int64_t elements =
      std::accumulate(in_memory.begin(), in_memory.end(), std::int64_t{1}, std::multiplies<>());
  const at::Tensor all = at::empty({skipped + elements}, ScalarTypeOf(buffer.dtype));
  FillHard(buffer.dtype, prng.Next(), std::span(StorageOf(all), all.nbytes()));
  at::Tensor tensor = all.slice(0, skipped).view(in_memory).permute(places);
  for (std::int64_t i = 0; i < dimensions; ++i) {
    tensor = tensor.slice(i, starts[i], starts[i] + steps[i] * sizes[i], steps[i]);
  }
  tensor = tensor.expand(buffer.shape);
  if (buffer.may_turn && prng.Below(2) == 0) {
    tensor = IsComplex(buffer.dtype) ? at::conj(tensor) : at::_neg_view(tensor);
  }
  WriteValues(tensor, DrawValues(prng, buffer), StorageOf(tensor));
  return tensor;
}

RandomModule::RandomModule(Prng& prng, int world_size) {
  const std::vector<Node> nodes = DrawNodes(prng);
  std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> modules(world_size);
  for (auto& of_rank : modules) {
    for (const Node& node : nodes) {
      of_rank.push_back(std::make_shared<torch::nn::Module>());
      if (node.parent >= 0) of_rank[node.parent]->register_module(node.name, of_rank.back());
    }
    of_rank[0]->register_parameter("weight", at::zeros({3}));
    replicas_.push_back(of_rank[0]);
  }
  const std::uint64_t pool = prng.Below(4);
  const std::int64_t count = prng.Below(3) == 0 ? prng.Between(1, 8) : prng.Between(1, 60);
  std::vector<std::size_t> last_of_node(nodes.size());
  std::vector<std::size_t> node_of;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_second_name = i > 0 && prng.Below(8) == 0;
    Buffer buffer;
    if (is_second_name) {
      buffer = buffers_[prng.Below(buffers_.size())];
      const bool is_same_handle = prng.Below(2) == 0;
      for (at::Tensor& tensor : buffer.by_rank) {
        if (!is_same_handle) tensor = tensor.detach();
      }
      buffer.registered.clear();
    } else {
      DrawType(prng, pool, buffer);
      DrawShape(prng, buffer);
      for (int rank = 0; rank < world_size; ++rank) {
        buffer.by_rank.push_back(DrawTensor(prng, buffer));
      }
    }
    const std::size_t node = prng.Below(nodes.size());
    const std::string name = absl::StrCat(KindOf(buffer.dtype), "_", i);
    buffer.name = nodes[node].path + name;
    for (int rank = 0; rank < world_size; ++rank) {
      buffer.registered.push_back(
          &modules[rank][node]->register_buffer(name, buffer.by_rank[rank]));
    }
    last_of_node[node] = i;
    node_of.push_back(node);
    buffers_.push_back(std::move(buffer));
  }
  // Where a module holds a buffer is known until it registers the next.
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (last_of_node[node_of[i]] != i) buffers_[i].registered.assign(world_size, nullptr);
  }
  if (nodes.size() > 1 && prng.Below(4) == 0) {
    const std::size_t shared = prng.Between(1, static_cast<std::int64_t>(nodes.size()) - 1);
    for (auto& of_rank : modules) of_rank[0]->register_module("again", of_rank[shared]);
  }
}

at::Tensor RandomModule::weight(int rank) const {
  return replicas_[rank]->named_parameters()["weight"];
}

std::vector<NamedBuffer> RandomModule::Buffers(int rank) const {
  std::vector<NamedBuffer> buffers;
  for (const auto& item : replicas_[rank]->named_buffers()) {
    buffers.push_back({item.key(), item.value()});
  }
  return buffers;
}

NaiveBuffers RandomModule::Values() const {
  NaiveBuffers values;
  // The same memory, read in the same way, is one tensor.
  using Identity = std::tuple<const void*, std::int64_t, at::ScalarType, Sizes, Sizes>;
  std::map<Identity, std::size_t> known;
  std::vector<std::vector<NamedBuffer>> ranks;
  for (int rank = 0; rank < world_size(); ++rank) ranks.push_back(Buffers(rank));
  for (std::size_t i = 0; i < ranks[0].size(); ++i) {
    const at::Tensor& first = ranks[0][i].tensor;
    const Identity identity = {first.storage().unsafeGetStorageImpl(), first.storage_offset(),
                               first.scalar_type(), first.sizes().vec(), first.strides().vec()};
    const auto [tensor, is_new] = known.try_emplace(identity, values.tensors.size());
    values.names.push_back({ranks[0][i].name, tensor->second});
    if (!is_new) continue;
    NaiveBuffers::Tensor& added = values.tensors.emplace_back();
    for (const DType dtype : kAllDTypes) {
      if (ScalarTypeOf(dtype) == first.scalar_type()) added.dtype = dtype;
    }
    for (const std::vector<NamedBuffer>& buffers : ranks) {
      added.by_rank.push_back(ReadValues(buffers[i].tensor, StorageOf(buffers[i].tensor)));
    }
  }
  return values;
}

Manifest RandomModule::BufferManifest() const {
  const NaiveBuffers values = Values();
  const std::vector<NamedBuffer> buffers = Buffers(0);
  Manifest manifest;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    manifest.buffers.push_back({.name = buffers[i].name,
                                .dtype = values.tensors[values.names[i].tensor].dtype,
                                .shape = buffers[i].tensor.sizes().vec()});
  }
  return manifest;
}

void RandomModule::Mutate(Prng& prng) {
  for (const Buffer& buffer : buffers_) {
    if (prng.Below(2) == 0) continue;
    const Bytes same_on_all = DrawValues(prng, buffer);
    const std::uint64_t how = prng.Below(4);
    for (const at::Tensor& tensor : buffer.by_rank) {
      if (how == 0) {
        WriteValues(tensor, same_on_all, StorageOf(tensor));
      } else if (prng.Below(2) == 0) {
        WriteValues(tensor, DrawValues(prng, buffer), StorageOf(tensor));
      }
    }
  }
}

std::string RandomModule::Reassign(Prng& prng) {
  Buffer& buffer = buffers_[prng.Below(buffers_.size())];
  if (buffer.registered[0] == nullptr) return "nothing";
  if (prng.Below(2) == 0) DrawShape(prng, buffer);
  for (std::size_t rank = 0; rank < replicas_.size(); ++rank) {
    buffer.by_rank[rank] = DrawTensor(prng, buffer);
    *buffer.registered[rank] = buffer.by_rank[rank];
  }
  return buffer.name;
}

}  // namespace lockstep
