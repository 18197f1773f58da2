#include "common/policy/schedule.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::vector<int> DueForwards(const SyncPolicy& policy) {
  std::vector<int> due;
  for (int n = 0; n <= 7; ++n) {
    if (BufferSyncDueBeforeForward(policy, n)) due.push_back(n);
  }
  return due;
}

std::vector<int> DueSteps(const SyncPolicy& policy) {
  std::vector<int> due;
  for (int n = 0; n <= 7; ++n) {
    if (BufferSyncDueAfterStep(policy, n)) due.push_back(n);
  }
  return due;
}

TEST(Schedule, IsDueAtEachMultipleOfThePeriod) {
  EXPECT_EQ(DueForwards({}), (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(DueForwards({.schedule = {.every_forwards = 3}}), (std::vector<int>{3, 6}));
  EXPECT_EQ(DueForwards({.schedule = {.every_forwards = 0}}), std::vector<int>{});
  EXPECT_EQ(DueSteps({}), std::vector<int>{});
  EXPECT_EQ(DueSteps({.schedule = {.every_steps = 2}}), (std::vector<int>{2, 4, 6}));
}

TEST(Schedule, TheMasterSwitchStopsAllButTheStart) {
  const SyncPolicy off = {
      .broadcast_buffers = false,
      .schedule = {.every_forwards = 1, .every_steps = 1, .before_evaluation = true}};
  EXPECT_EQ(DueForwards(off), std::vector<int>{});
  EXPECT_EQ(DueSteps(off), std::vector<int>{});
  EXPECT_FALSE(BufferSyncDueBeforeEvaluation(off));
  EXPECT_TRUE(BufferSyncDueAtStart(off));
}

TEST(Schedule, StartAndEvaluationHaveTheirOwnSwitches) {
  EXPECT_TRUE(BufferSyncDueAtStart({}));
  EXPECT_FALSE(BufferSyncDueAtStart({.schedule = {.at_start = false}}));
  EXPECT_FALSE(BufferSyncDueBeforeEvaluation({}));
  EXPECT_TRUE(BufferSyncDueBeforeEvaluation({.schedule = {.before_evaluation = true}}));
}

TEST(ResolveRoot, FindsTheMemberOrFallsBackToTheLowestRank) {
  const std::vector<std::string> members = {"w1", "w2", "w5"};
  struct Case {
    Root root;
    int rank;
    bool fallback;
  };
  const std::vector<Case> cases = {
      {LowestRank{}, 0, false},       {RootRank{0}, 0, false},   {RootRank{2}, 2, false},
      {RootRank{3}, 0, true},         {RootRank{-1}, 0, true},   {RootRank{std::int64_t{1} << 32}, 0, true},
      {RootWorker{"w5"}, 2, false},   {RootWorker{"w1"}, 0, false}, {RootWorker{"w3"}, 0, true},
  };
  for (const Case& c : cases) {
    const ResolvedRoot resolved = ResolveRoot(c.root, members);
    EXPECT_EQ(resolved.rank, c.rank);
    EXPECT_EQ(resolved.fallback, c.fallback);
  }
}

}  // namespace
}  // namespace lockstep
