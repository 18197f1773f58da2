#include "worker/optim/squared_norm.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/prng.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(SquaredNorm, IsExactOnSmallIntegersOfAnySize) {
  Prng prng(3);
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<float> values(n);
    double expected = 0;
    for (float& value : values) {
      value = static_cast<float>(prng.Between(-9, 9));
      expected += value * value;
    }
    EXPECT_EQ(SquaredNorm(values), expected) << n;
  }
}

TEST(SquaredNorm, IsFiniteExactlyIfEveryValueIs) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(SquaredNorm(std::vector<float>(1000, kLargest))));
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (std::size_t at = 0; at < 35; ++at) {
      std::vector<float> values(35, 1);
      values[at] = bad;
      EXPECT_FALSE(std::isfinite(SquaredNorm(values))) << bad << " at " << at;
    }
  }
}

}  // namespace
}  // namespace lockstep
