#include "worker/numeric/magnitude.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "worker/numeric/vector_loop.h"

namespace lockstep {
namespace {

// Without their sign, the bits of floating types are ordered as their magnitudes are,
// and those of NaN are above all.
template <typename Bits>
constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();  // all but the sign

// `to`: where they are copied, if `kCopies`.
template <bool kCopies, typename Bits>
LOCKSTEP_VECTORIZE Bits Largest(const Bits* from, Bits* to, std::size_t n) {
  Bits lanes[kStripElements] = {};
  ForEachStrip(n, [&](std::size_t begin, auto width) {
    PrefetchToRead(from + begin);
    if constexpr (kCopies) PrefetchToWrite(to + begin);
#pragma GCC ivdep
    for (std::size_t j = 0; j < width; ++j) {
      const Bits value = from[begin + j];
      if constexpr (kCopies) to[begin + j] = value;
      lanes[j] = std::max<Bits>(lanes[j], value & kMagnitude<Bits>);
    }
  });
  return *std::ranges::max_element(lanes);
}

// The value that has those bits, all of which but the sign are given.
float Value(DType dtype, std::int32_t bits) {
  float value = 0;
  switch (dtype) {
    case DType::kBfloat16:
      value = std::bit_cast<c10::BFloat16>(static_cast<std::int16_t>(bits));
      break;
    case DType::kFloat16:
      value = std::bit_cast<c10::Half>(static_cast<std::int16_t>(bits));
      break;
    default:
      value = std::bit_cast<float>(bits);
  }
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
}

template <bool kCopies>
float LargestOf(DType dtype, const std::byte* from, std::byte* to, std::int64_t elements) {
  const auto largest = [&]<typename Bits>(Bits) -> std::int32_t {
    return Largest<kCopies>(reinterpret_cast<const Bits*>(from), reinterpret_cast<Bits*>(to),
                            static_cast<std::size_t>(elements));
  };
  return Value(dtype, ElementBytes(dtype) == 2 ? largest(std::int16_t()) : largest(std::int32_t()));
}

}  // namespace

float LargestMagnitude(DType dtype, const std::byte* values, std::int64_t elements) {
  return LargestOf<false>(dtype, values, nullptr, elements);
}

float CopyAndFindLargest(DType dtype, const std::byte* from, std::byte* to,
                         std::int64_t elements) {
  return LargestOf<true>(dtype, from, to, elements);
}

}  // namespace lockstep
