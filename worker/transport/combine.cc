#include "worker/transport/combine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/base/check.h"

namespace lockstep {
namespace {

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    // Unsigned sums wrap; signed ones of 32 and 64 bits would be undefined.
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
bool IsNan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T, typename Op>
void Apply(std::byte* into, const std::byte* from, std::int64_t elements, Op op) {
  for (std::int64_t i = 0; i < elements; ++i) {
    T a;
    T b;
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = op(a, b);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

template <typename T>
void CombineAs(ReduceOp op, std::byte* into, const std::byte* from, std::int64_t elements) {
  switch (op) {
    case ReduceOp::kSum:
      return Apply<T>(into, from, elements, [](T a, T b) { return Sum(a, b); });
    case ReduceOp::kMin:
      return Apply<T>(into, from, elements, [](T a, T b) { return a < b || IsNan(a) ? a : b; });
    case ReduceOp::kMax:
      return Apply<T>(into, from, elements, [](T a, T b) { return a > b || IsNan(a) ? a : b; });
  }
}

}  // namespace

bool IsReducible(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kFloat32:
    case DType::kFloat64:
      return true;
    default:
      return false;
  }
}

void Combine(DType dtype, ReduceOp op, std::byte* into, const std::byte* from,
             std::int64_t elements) {
  switch (dtype) {
    case DType::kBool:
      return CombineAs<std::uint8_t>(op == ReduceOp::kSum ? ReduceOp::kMax : op, into, from,
                                     elements);
    case DType::kInt8:
      return CombineAs<std::int8_t>(op, into, from, elements);
    case DType::kInt16:
      return CombineAs<std::int16_t>(op, into, from, elements);
    case DType::kInt32:
      return CombineAs<std::int32_t>(op, into, from, elements);
    case DType::kInt64:
      return CombineAs<std::int64_t>(op, into, from, elements);
    case DType::kUint8:
      return CombineAs<std::uint8_t>(op, into, from, elements);
    case DType::kUint16:
      return CombineAs<std::uint16_t>(op, into, from, elements);
    case DType::kUint32:
      return CombineAs<std::uint32_t>(op, into, from, elements);
    case DType::kUint64:
      return CombineAs<std::uint64_t>(op, into, from, elements);
    case DType::kFloat32:
      return CombineAs<float>(op, into, from, elements);
    case DType::kFloat64:
      return CombineAs<double>(op, into, from, elements);
    default:
      LOCKSTEP_CHECK(IsReducible(dtype));
  }
}

void WeightedSum(std::span<const float* const> sources, std::span<const float> weights,
                 float* into, std::int64_t elements) {
  // Tiles stay in the first-level cache while the ranks are added; the tile apart
  // from `into` lets `into` be a source.
  constexpr std::int64_t kTile = 2048;
  float tile[kTile];
  for (std::int64_t start = 0; start < elements; start += kTile) {
    const std::int64_t n = std::min(kTile, elements - start);
    bool first = true;
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      const float weight = weights[rank];
      if (weight == 0) continue;
      const float* source = sources[rank] + start;
      if (first) {
        for (std::int64_t i = 0; i < n; ++i) tile[i] = weight * source[i];
      } else {
        for (std::int64_t i = 0; i < n; ++i) tile[i] += weight * source[i];
      }
      first = false;
    }
    if (first) std::fill_n(tile, n, 0.0f);
    std::memcpy(into + start, tile, n * sizeof(float));
  }
}

}  // namespace lockstep
