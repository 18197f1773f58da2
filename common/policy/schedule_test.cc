#include "common/policy/schedule.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::vector<int> Due(const Schedule& schedule, Moment moment, bool broadcast_buffers = true) {
  std::vector<int> due;
  for (int n = 0; n <= 7; ++n) {
    if (IsDue(broadcast_buffers, schedule, moment, n)) due.push_back(n);
  }
  return due;
}

TEST(Schedule, IsDueAtEachMultipleOfThePeriod) {
  EXPECT_EQ(Due({}, Moment::kForward), (std::vector<int>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Due({.every_forwards = 3}, Moment::kForward), (std::vector<int>{3, 6}));
  EXPECT_EQ(Due({.every_forwards = 0}, Moment::kForward), std::vector<int>{});
  EXPECT_EQ(Due({}, Moment::kStep), std::vector<int>{});
  EXPECT_EQ(Due({.every_steps = 2}, Moment::kStep), (std::vector<int>{2, 4, 6}));
}

TEST(Schedule, TheMasterSwitchStopsAllButTheStart) {
  const Schedule all = {.every_forwards = 1,
                        .every_steps = 1,
                        .before_evaluation = true,
                        .before_checkpoint = true};
  for (const Moment moment :
       {Moment::kForward, Moment::kStep, Moment::kEvaluation, Moment::kCheckpoint}) {
    EXPECT_TRUE(IsDue(true, all, moment, 1));
    EXPECT_FALSE(IsDue(false, all, moment, 1));
  }
  EXPECT_TRUE(IsDue(false, all, Moment::kStart));
}

TEST(Schedule, StartEvaluationAndCheckpointHaveTheirOwnSwitches) {
  EXPECT_TRUE(IsDue(true, {}, Moment::kStart));
  EXPECT_FALSE(IsDue(true, {.at_start = false}, Moment::kStart));
  EXPECT_FALSE(IsDue(true, {}, Moment::kEvaluation));
  EXPECT_TRUE(IsDue(true, {.before_evaluation = true}, Moment::kEvaluation));
  EXPECT_FALSE(IsDue(true, {.before_evaluation = true}, Moment::kCheckpoint));
  EXPECT_TRUE(IsDue(true, {.before_checkpoint = true}, Moment::kCheckpoint));
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
