#include "tests/bench/cost_plan.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMiB = 1 << 20;

TEST(CostPlan, EverySizeIsMeasuredWithEveryNumberOfRanks) {
  std::set<std::int64_t> sizes;
  std::set<int> worlds;
  for (const CostPoint& point : CostPoints(/*tiny=*/false)) {
    sizes.insert(point.elements());
    worlds.insert(point.ranks);
    EXPECT_EQ(SizesOf(point).step_elements(), point.elements());
  }
  EXPECT_THAT(sizes, ElementsAre(1'000'000, 4'000'000, 16'000'000, 64'000'000, 100'000'000));
  EXPECT_THAT(worlds, ElementsAre(1, 2, 4, 8));
  EXPECT_EQ(CostPoints(/*tiny=*/false).size(), 20);
  EXPECT_EQ(CostPoints(/*tiny=*/true).size(), 4);
}

TEST(CostPlan, OwnParametersAndGradientsCountOnceForEachRank) {
  // 4 MiB of float32.
  const CostPoint one = {.side = 1024, .ranks = 1};
  const CostPoint eight = {.side = 1024, .ranks = 8};
  EXPECT_EQ(StepBytes(one), (4 + 8 + 4 + 4 + 150) * kMiB);
  EXPECT_EQ(StepBytes(eight), (4 + 8 + 8 * (4 + 4 + 150)) * kMiB);
  EXPECT_EQ(StepAndProbeBytes(eight), 2 * (4 + 8 + 8 * (4 + 150)) * kMiB);
}

TEST(CostPlan, WhatDoesNotFitIsLeftOutTheProbeFirst) {
  const CostPoint point = {.side = 10000, .ranks = 8};
  const struct {
    std::int64_t available;
    CostFit fit;
  } cases[] = {{0, CostFit::kNothing},
               {-1, CostFit::kNothing},  // unknown
               {StepBytes(point), CostFit::kNothing},
               {StepBytes(point) / 9 * 10 + 10, CostFit::kStepAlone},
               {StepAndProbeBytes(point) / 9 * 10 - 10, CostFit::kStepAlone},
               {StepAndProbeBytes(point) / 9 * 10 + 10, CostFit::kStepAndProbe}};
  for (const auto& [available, fit] : cases) EXPECT_EQ(FitOf(point, available), fit) << available;
}

}  // namespace
}  // namespace lockstep
