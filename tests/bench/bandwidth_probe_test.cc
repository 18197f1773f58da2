#include "tests/bench/bandwidth_probe.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Each;

TEST(BandwidthProbe, TouchesEveryElementOfEveryStream) {
  constexpr int kElements = 2500;  // no multiple of a block
  std::vector<float> first(kElements, 1), second(kElements, 2);
  std::vector<float> p(kElements, 10), m(kElements, 20), v(kElements, 30);
  const std::vector<std::span<const float>> gradients = {first, second};
  StreamStep(gradients, p, m, v);
  EXPECT_THAT(p, Each(13));
  EXPECT_THAT(m, Each(23));
  EXPECT_THAT(v, Each(33));
}

}  // namespace
}  // namespace lockstep
