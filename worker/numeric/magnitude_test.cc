#include "worker/numeric/magnitude.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "common/base/prng.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
float LargestOf(DType dtype, const std::vector<T>& values) {
  const auto elements = static_cast<std::int64_t>(values.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  std::vector<T> copy(values.size(), T(7.0f));
  const float largest =
      CopyAndFindLargest(dtype, bytes, reinterpret_cast<std::byte*>(copy.data()), elements);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(values)), std::as_bytes(std::span(copy))));
  EXPECT_EQ(LargestMagnitude(dtype, bytes, elements), largest);
  return largest;
}

template <typename T>
void ExpectLargestAtEveryPlace(DType dtype) {
  EXPECT_EQ(LargestOf<T>(dtype, {}), 0);
  Prng prng(1);
  for (const std::size_t size : {1, 2, 15, 16, 17, 33, 100}) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<T> values;
      for (std::size_t i = 0; i < size; ++i) values.push_back(T(static_cast<float>(prng.Unit()) - 0.5f));
      for (const float value : {3.5f, -3.5f}) {
        values[at] = T(value);
        EXPECT_EQ(LargestOf<T>(dtype, values), 3.5f) << size << " " << at;
      }
      for (const float value : {kInfinity, -kInfinity, kNan, -kNan}) {
        values[at] = T(value);
        EXPECT_EQ(LargestOf<T>(dtype, values), kInfinity) << size << " " << at;
      }
    }
  }
}

TEST(LargestMagnitude, IsFoundAtEveryPlaceOfEveryLength) {
  ExpectLargestAtEveryPlace<float>(DType::kFloat32);
  ExpectLargestAtEveryPlace<c10::BFloat16>(DType::kBfloat16);
  ExpectLargestAtEveryPlace<c10::Half>(DType::kFloat16);
}

TEST(LargestMagnitude, OfZerosIsZeroAndOfTheSmallestIsIt) {
  EXPECT_EQ(LargestOf<float>(DType::kFloat32, {0.0f, -0.0f}), 0);
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(LargestOf<float>(DType::kFloat32, {0.0f, -smallest}), smallest);
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(LargestOf<float>(DType::kFloat32, {1.0f, -most}), most);
}

}  // namespace
}  // namespace lockstep
