#include "worker/combine/combine.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Float8_e4m3fnuz.h>
#include <torch/headeronly/util/Float8_e5m2.h>
#include <torch/headeronly/util/Float8_e5m2fnuz.h>
#include <torch/headeronly/util/Float8_e8m0fnu.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "common/base/check.h"
#include "worker/numeric/vector_loop.h"

namespace lockstep {
namespace {

using Sources = std::span<const std::byte* const>;

// Of one tile, which stays in the first-level cache while the ranks are added; a
// tile apart from `into` lets `into` be a source.
constexpr std::int64_t kTile = 1024;

template <typename T>
T Load(const std::byte* from, std::int64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* into, std::int64_t i) {
  std::memcpy(into + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
auto Widen(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

// The float next to `value` towards zero, with its last bit set if it is another
// number: rounding that to a type of at most 22 bits gives what rounding `value`
// itself would, where rounding to the nearest float in between would not.
float RoundToOdd(double value) {
  float rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || std::isnan(value)) return rounded;
  auto bits = std::bit_cast<std::uint32_t>(rounded);
  // Infinity's predecessor is the largest float.
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <typename T>
T Narrow(double value) {
  // The sign of what an invalid operation gives depends on the processor.
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return T(RoundToOdd(value));
  }
}

// Sum or mean of floating T.
template <typename T>
void AddUp(ReduceOp op, std::span<const double> weights, Sources sources, std::byte* into,
           std::int64_t elements) {
  double divisor = 1;
  if (op == ReduceOp::kMean) {
    divisor = weights.empty() ? static_cast<double>(sources.size())
                              : std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  double tile[kTile];
  for (std::int64_t start = 0; start < elements; start += kTile) {
    const std::int64_t n = std::min(kTile, elements - start);
    bool first = true;
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      const double weight = weights.empty() ? 1 : weights[rank];
      if (weight == 0) continue;
      const std::byte* source = sources[rank] + start * sizeof(T);
      if (first) {
        for (std::int64_t i = 0; i < n; ++i) tile[i] = weight * Widen(Load<T>(source, i));
      } else {
        for (std::int64_t i = 0; i < n; ++i) tile[i] += weight * Widen(Load<T>(source, i));
      }
      first = false;
    }
    if (divisor != 1) {
      for (std::int64_t i = 0; i < n; ++i) tile[i] /= divisor;
    }
    for (std::int64_t i = 0; i < n; ++i) Store(Narrow<T>(tile[i]), into, start + i);
  }
}

// into = combine(...combine(combine(rank 0's, rank 1's), rank 2's)...).
template <typename T, typename Combine>  // Combine: (T held, T value) -> T
void Fold(Sources sources, std::byte* into, std::int64_t elements, Combine combine) {
  T tile[kTile];
  for (std::int64_t start = 0; start < elements; start += kTile) {
    const std::int64_t n = std::min(kTile, elements - start);
    std::memcpy(tile, sources[0] + start * sizeof(T), n * sizeof(T));
    for (const std::byte* whole : sources.subspan(1)) {
      const std::byte* source = whole + start * sizeof(T);
      for (std::int64_t i = 0; i < n; ++i) tile[i] = combine(tile[i], Load<T>(source, i));
    }
    std::memcpy(into + start * sizeof(T), tile, n * sizeof(T));
  }
}

template <typename T>
void Extreme(ReduceOp op, Sources sources, std::byte* into, std::int64_t elements) {
  const auto select = [](auto is_beyond) {
    return [is_beyond](T held, T value) {
      const auto h = Widen(held);
      const auto v = Widen(value);
      if constexpr (std::is_floating_point_v<decltype(h)>) {
        return !std::isnan(h) && (std::isnan(v) || is_beyond(v, h)) ? value : held;
      } else {
        return is_beyond(v, h) ? value : held;
      }
    };
  };
  if (op == ReduceOp::kMin) {
    Fold<T>(sources, into, elements, select([](auto v, auto h) { return v < h; }));
  } else {
    Fold<T>(sources, into, elements, select([](auto v, auto h) { return v > h; }));
  }
}

void ReduceBools(ReduceOp op, Sources sources, std::byte* into, std::int64_t elements) {
  using Byte = std::uint8_t;
  if (op == ReduceOp::kMin) {
    Fold<Byte>(sources, into, elements, [](Byte a, Byte b) -> Byte { return a != 0 && b != 0; });
  } else {
    Fold<Byte>(sources, into, elements, [](Byte a, Byte b) -> Byte { return a != 0 || b != 0; });
  }
}

template <typename T>
void ReduceIntegers(ReduceOp op, Sources sources, std::byte* into, std::int64_t elements) {
  if (op != ReduceOp::kSum) return Extreme<T>(op, sources, into, elements);
  // Unsigned sums wrap; signed ones would be undefined.
  using Unsigned = std::make_unsigned_t<T>;
  Fold<Unsigned>(sources, into, elements,
                 [](Unsigned a, Unsigned b) { return static_cast<Unsigned>(a + b); });
}

template <typename T>
void ReduceFloats(ReduceOp op, std::span<const double> weights, Sources sources,
                  std::byte* into, std::int64_t elements) {
  if (op == ReduceOp::kSum || op == ReduceOp::kMean) {
    AddUp<T>(op, weights, sources, into, elements);
  } else {
    Extreme<T>(op, sources, into, elements);
  }
}

}  // namespace

void Reduce(DType dtype, ReduceOp op, std::span<const double> weights, Sources sources,
            std::byte* into, std::int64_t elements) {
  LOCKSTEP_CHECK(IsReducible(dtype, op) && !sources.empty());
  LOCKSTEP_CHECK(weights.empty() || (op == ReduceOp::kMean && weights.size() == sources.size()));
  switch (dtype) {
    case DType::kUnspecified:
      return;
    case DType::kBool:
      return ReduceBools(op, sources, into, elements);
    case DType::kInt8:
      return ReduceIntegers<std::int8_t>(op, sources, into, elements);
    case DType::kInt16:
      return ReduceIntegers<std::int16_t>(op, sources, into, elements);
    case DType::kInt32:
      return ReduceIntegers<std::int32_t>(op, sources, into, elements);
    case DType::kInt64:
      return ReduceIntegers<std::int64_t>(op, sources, into, elements);
    case DType::kUint8:
      return ReduceIntegers<std::uint8_t>(op, sources, into, elements);
    case DType::kUint16:
      return ReduceIntegers<std::uint16_t>(op, sources, into, elements);
    case DType::kUint32:
      return ReduceIntegers<std::uint32_t>(op, sources, into, elements);
    case DType::kUint64:
      return ReduceIntegers<std::uint64_t>(op, sources, into, elements);
    case DType::kFloat16:
      return ReduceFloats<c10::Half>(op, weights, sources, into, elements);
    case DType::kBfloat16:
      return ReduceFloats<c10::BFloat16>(op, weights, sources, into, elements);
    case DType::kFloat32:
      return ReduceFloats<float>(op, weights, sources, into, elements);
    case DType::kFloat64:
      return ReduceFloats<double>(op, weights, sources, into, elements);
    case DType::kComplex32:
      return AddUp<c10::Half>(op, weights, sources, into, 2 * elements);
    case DType::kComplex64:
      return AddUp<float>(op, weights, sources, into, 2 * elements);
    case DType::kComplex128:
      return AddUp<double>(op, weights, sources, into, 2 * elements);
    case DType::kFloat8E4m3fn:
      return ReduceFloats<c10::Float8_e4m3fn>(op, weights, sources, into, elements);
    case DType::kFloat8E5m2:
      return ReduceFloats<c10::Float8_e5m2>(op, weights, sources, into, elements);
    case DType::kFloat8E4m3fnuz:
      return ReduceFloats<c10::Float8_e4m3fnuz>(op, weights, sources, into, elements);
    case DType::kFloat8E5m2fnuz:
      return ReduceFloats<c10::Float8_e5m2fnuz>(op, weights, sources, into, elements);
    case DType::kFloat8E8m0fnu:
      return Extreme<c10::Float8_e8m0fnu>(op, sources, into, elements);
  }
}

namespace {

// The sum of a tile stays in the first-level cache while the ranks are added.
constexpr std::size_t kSumTile = 1024;

// A rank's part of a tile.
template <typename T>
struct Term {
  const T* values = nullptr;
  float weight = 0;
};

// Adds `first` and `more` to the tile, or begins it with them: each is read and added in
// its order, so that several at once save passes over the tile and no bit.
template <bool kBegins, typename T, typename... More>
LOCKSTEP_VECTORIZE void AddUpTerms(std::size_t n, float* tile, Term<T> first, More... more) {
  ForEachStrip(n, [=](std::size_t begin, auto width) {
    PrefetchToRead(first.values + begin);
    (PrefetchToRead(more.values + begin), ...);
#pragma GCC ivdep
    for (std::size_t i = begin; i < begin + width; ++i) {
      const float product = first.weight * static_cast<float>(first.values[i]);
      float sum = kBegins ? product : tile[i] + product;
      ((sum += more.weight * static_cast<float>(more.values[i])), ...);
      tile[i] = sum;
    }
  });
}

template <typename T>
void WeightedSumOf(Sources sources, std::span<const float> weights, std::int64_t elements,
                   const ConsumeSums& consume) {
  std::vector<Term<T>> terms;
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    if (weights[rank] == 0) continue;
    terms.push_back({reinterpret_cast<const T*>(sources[rank]), weights[rank]});
  }
  alignas(64) float tile[kSumTile] = {};
  for (std::int64_t start = 0; start < elements; start += kSumTile) {
    const std::size_t n = std::min<std::int64_t>(kSumTile, elements - start);
    const auto term = [&](std::size_t i) {
      return Term<T>{terms[i].values + start, terms[i].weight};
    };
    if (terms.size() == 1) AddUpTerms<true>(n, tile, term(0));
    if (terms.size() >= 2) AddUpTerms<true>(n, tile, term(0), term(1));
    std::size_t next = 2;
    for (; next + 1 < terms.size(); next += 2) {
      AddUpTerms<false>(n, tile, term(next), term(next + 1));
    }
    if (next < terms.size()) AddUpTerms<false>(n, tile, term(next));
    consume(start, {tile, n});
  }
}

}  // namespace

void WeightedSum(DType dtype, Sources sources, std::span<const float> weights,
                 std::int64_t elements, const ConsumeSums& consume) {
  LOCKSTEP_CHECK(IsTrainable(dtype) && sources.size() == weights.size());
  switch (dtype) {
    case DType::kBfloat16:
      return WeightedSumOf<c10::BFloat16>(sources, weights, elements, consume);
    case DType::kFloat16:
      return WeightedSumOf<c10::Half>(sources, weights, elements, consume);
    default:
      return WeightedSumOf<float>(sources, weights, elements, consume);
  }
}

}  // namespace lockstep
