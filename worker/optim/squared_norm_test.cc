#include "worker/optim/squared_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/base/prng.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

double NormOf(const std::vector<float>& values) {
  SquaredNorm norm;
  norm.Add(values);
  return norm.sum();
}

TEST(SquaredNorm, HasTheSameBitsHoweverTheRangeIsCut) {
  Prng prng(4);
  std::vector<float> values(1000);
  for (float& value : values) value = static_cast<float>(prng.Unit());
  const double whole = NormOf(values);
  for (int i = 0; i < 200; ++i) {
    SquaredNorm norm;
    for (std::size_t at = 0; at < values.size();) {
      const std::size_t size = std::min<std::size_t>(prng.Below(70), values.size() - at);
      norm.Add(std::span(values).subspan(at, size));
      at += size;
    }
    ASSERT_EQ(norm.sum(), whole) << i;
  }
}

TEST(SquaredNorm, IsExactOnSmallIntegersOfAnySize) {
  Prng prng(3);
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<float> values(n);
    double expected = 0;
    for (float& value : values) {
      value = static_cast<float>(prng.Between(-9, 9));
      expected += value * value;
    }
    EXPECT_EQ(NormOf(values), expected) << n;
  }
}

TEST(SquaredNorm, IsFiniteExactlyIfEveryValueIs) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(NormOf(std::vector<float>(1000, kLargest))));
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (std::size_t at = 0; at < 35; ++at) {
      std::vector<float> values(35, 1);
      values[at] = bad;
      EXPECT_FALSE(std::isfinite(NormOf(values))) << bad << " at " << at;
    }
  }
}

}  // namespace
}  // namespace lockstep
