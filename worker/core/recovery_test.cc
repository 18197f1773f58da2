#include "worker/core/recovery.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/sharding/replicas.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/core/step_commit.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Way = Recovery::Way;
using Copies = std::vector<std::vector<Shard>>;

constexpr int kElements = 24;

// An epoch of that many ranks.
Copies Of(int ranks, int replicas = 2) {
  ShardPlan plan;
  for (int r = 0; r < ranks; ++r) {
    plan.shards.push_back({kElements * r / ranks, kElements * (r + 1) / ranks});
  }
  return CopiesOf(plan, replicas);
}

constexpr std::int64_t SamplesOf(std::int64_t step) { return 10 * step; }

// A rank that trained in `epoch`, which began behind `step` of `lineage`, or is that far.
Holding Idle(std::int64_t step, const std::vector<Shard>& copies, std::int64_t epoch = 5,
             std::int64_t lineage = 3) {
  return StepCommit(Epoch(lineage), Epoch(epoch), step, SamplesOf(step), copies).holding();
}
Holding Prepared(std::int64_t step, const std::vector<Shard>& copies, std::int64_t epoch = 5,
                 std::int64_t lineage = 3) {
  StepCommit commit(Epoch(lineage), Epoch(epoch), step, SamplesOf(step), copies);
  commit.Prepared(10);
  return commit.holding();
}
Holding Torn(std::int64_t step, const std::vector<Shard>& copies, std::int64_t epoch = 5) {
  StepCommit commit(Epoch(3), Epoch(epoch), step, SamplesOf(step), copies);
  commit.Prepared(10);
  commit.BeginUpdate();
  return commit.holding();
}
// It has taken the step behind `step` in `epoch`.
Holding Updated(std::int64_t step, const std::vector<Shard>& copies, std::int64_t epoch = 5) {
  return Idle(step + 1, copies, epoch, epoch);
}
const Holding kNew;

void ExpectContinues(const Recovery& recovery, std::int64_t lineage, std::int64_t step,
                     const std::vector<bool>& survives, const std::vector<bool>& completes) {
  ASSERT_EQ(recovery.way, Way::kContinue);
  EXPECT_EQ(recovery.lineage, Epoch(lineage));
  EXPECT_EQ(recovery.step, step);
  EXPECT_EQ(recovery.samples, SamplesOf(step));
  EXPECT_EQ(recovery.survives, survives);
  EXPECT_EQ(recovery.completes, completes);
}

void ExpectLost(const Recovery& recovery, std::int64_t step, Shard lost) {
  EXPECT_EQ(recovery.way, Way::kRestore);
  EXPECT_EQ(recovery.step, step);
  EXPECT_EQ(recovery.lost, lost);
  EXPECT_THAT(recovery.moves, IsEmpty());
}

// From where each element of each copy comes, found element by element.
void ExpectFills(const Recovery& recovery, const std::vector<Holding>& holdings,
                 const Copies& copies) {
  ASSERT_EQ(recovery.way, Way::kContinue);
  const auto has = [&](std::size_t r, std::int64_t e) {
    return recovery.survives[r] && std::ranges::any_of(holdings[r].copies, [&](const Shard& copy) {
             return copy.begin <= e && e < copy.end;
           });
  };
  std::vector<Move> expected, found;  // of one element each
  for (std::size_t to = 0; to < copies.size(); ++to) {
    for (const Shard& copy : copies[to]) {
      for (std::int64_t e = copy.begin; e < copy.end; ++e) {
        std::size_t from = 0;
        while (from < holdings.size() && !has(from, e)) ++from;
        if (has(to, e)) from = to;
        ASSERT_LT(from, holdings.size());
        expected.push_back({static_cast<int>(from), static_cast<int>(to), {e, e + 1}});
      }
    }
  }
  for (const Move& move : recovery.moves) {
    for (std::int64_t e = move.elements.begin; e < move.elements.end; ++e) {
      found.push_back({move.from, move.to, {e, e + 1}});
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(Recovery, StartsAnewIfNobodyBringsAnything) {
  EXPECT_EQ(DecideRecovery(std::vector<Holding>{kNew, kNew}, Of(2)).way, Way::kStartAnew);
}

TEST(Recovery, StartsAnewIfNobodyHasTakenAStep) {
  const Copies old = Of(2);
  EXPECT_EQ(DecideRecovery(std::vector{Idle(0, old[0]), kNew}, Of(2)).way, Way::kStartAnew);
}

TEST(Recovery, StartsAnewIfTheFirstStepWasNotPreparedByAll) {
  const Copies old = Of(2);
  EXPECT_EQ(DecideRecovery(std::vector{Prepared(0, old[0]), Idle(0, old[1])}, old).way,
            Way::kStartAnew);
}

TEST(Recovery, CompletesTheFirstStepIfAllPreparedIt) {
  const Copies old = Of(2);
  ExpectContinues(DecideRecovery(std::vector{Prepared(0, old[0]), Prepared(0, old[1])}, old), 5, 1,
                  {true, true}, {true, true});
}

TEST(Recovery, DoesNotStartAnewIfTheFirstStepIsTorn) {
  const Copies old = Of(2);
  ExpectLost(DecideRecovery(std::vector{Torn(0, old[0]), kNew}, old), 1, {0, 12});
  ExpectContinues(DecideRecovery(std::vector{Torn(0, old[0]), Prepared(0, old[1])}, old), 5, 1,
                  {false, true}, {false, true});
}

TEST(Recovery, DoesNotStartAnewBecauseOfALaterEpochThatTookNoStep) {
  const Copies old = Of(2);
  const Copies later = Of(2);
  for (const Holding& unstarted : {Idle(0, later[0], 9, 9), Prepared(0, later[0], 9, 9)}) {
    ExpectContinues(
        DecideRecovery(std::vector{Idle(7, old[0]), Idle(7, old[1]), unstarted,
                                   Idle(0, later[1], 9, 9)},
                       Of(4)),
        3, 7, {true, true, false, false}, {false, false, false, false});
  }
}

TEST(Recovery, DoesNotCompleteAFirstStepThatALaterEpochTookBack) {
  const Copies old = Of(3);
  const Copies later = Of(2);
  const std::vector holdings = {Idle(0, later[0], 9, 9), Idle(0, later[1], 9, 9),
                                Prepared(0, old[2])};
  EXPECT_EQ(DecideRecovery(holdings, old).way, Recovery::Way::kStartAnew);
}

TEST(Recovery, ContinuesWithoutMovesBetweenRanksIfAllAreStillThere) {
  const Copies old = Of(3);
  const std::vector holdings = {Idle(7, old[0]), Idle(7, old[1]), Idle(7, old[2])};
  const Recovery recovery = DecideRecovery(holdings, old);
  ExpectContinues(recovery, 3, 7, {true, true, true}, {false, false, false});
  ExpectFills(recovery, holdings, old);
  for (const Move& move : recovery.moves) EXPECT_EQ(move.from, move.to);
  EXPECT_EQ(recovery.moves.size(), 6u) << "one for each copy";
}

TEST(Recovery, ContinuesWithTheBuddysCopyWhicheverRankIsLost) {
  const Copies old = Of(3);
  for (int lost = 0; lost < 3; ++lost) {
    std::vector<Holding> holdings;
    for (int r = 0; r < 3; ++r) {
      if (r != lost) holdings.push_back(Idle(7, old[r]));
    }
    const Recovery recovery = DecideRecovery(holdings, Of(2));
    ExpectContinues(recovery, 3, 7, {true, true}, {false, false});
    ExpectFills(recovery, holdings, Of(2));
  }
}

TEST(Recovery, RestoresIfARankIsLostWithoutReplicasAndNamesItsElements) {
  const Copies old = Of(3, 1);
  ExpectLost(DecideRecovery(std::vector{Idle(7, old[0]), Idle(7, old[2])}, Of(2, 1)), 7, {8, 12});
  ExpectLost(DecideRecovery(std::vector{Idle(7, old[1]), Idle(7, old[2])}, Of(2, 1)), 7, {0, 8});
  ExpectLost(DecideRecovery(std::vector{Idle(7, old[0]), Idle(7, old[1])}, Of(2, 1)), 7, {16, 24});
}

TEST(Recovery, RestoresIfOwnerAndBuddyAreLost) {
  const Copies old = Of(4);
  ExpectLost(DecideRecovery(std::vector{Idle(7, old[0]), Idle(7, old[3])}, Of(2)), 7, {6, 12});
  const std::vector others = {Idle(7, old[0]), Idle(7, old[2])};
  const Recovery recovery = DecideRecovery(others, Of(2));
  ExpectContinues(recovery, 3, 7, {true, true}, {false, false});
  ExpectFills(recovery, others, Of(2));
}

TEST(Recovery, FillsNewcomersFromTheSurvivors) {
  const Copies old = Of(2);
  const std::vector holdings = {kNew, Idle(7, old[0]), kNew, Idle(7, old[1])};
  const Recovery recovery = DecideRecovery(holdings, Of(4));
  ExpectContinues(recovery, 3, 7, {false, true, false, true}, {false, false, false, false});
  EXPECT_EQ(recovery.FirstSurvivor(), 1);
  ExpectFills(recovery, holdings, Of(4));
}

TEST(Recovery, CompletesTheStepIfAllSurvivorsPreparedIt) {
  const Copies old = Of(3);
  const std::vector holdings = {Prepared(7, old[0]), Prepared(7, old[2])};
  const Recovery recovery = DecideRecovery(holdings, Of(2));
  ExpectContinues(recovery, 5, 8, {true, true}, {true, true});
  ExpectFills(recovery, holdings, Of(2));
}

TEST(Recovery, TakesTheStepBackIfOneSurvivorHadNotPreparedIt) {
  const Copies old = Of(3);
  const std::vector holdings = {Prepared(7, old[0]), Idle(7, old[1]), Prepared(7, old[2])};
  ExpectContinues(DecideRecovery(holdings, old), 3, 7, {true, true, true}, {false, false, false});
}

TEST(Recovery, LetsARankThatIsOneStepBehindAndPreparedCatchUp) {
  const Copies old = Of(3);
  const std::vector holdings = {Prepared(7, old[0]), Updated(7, old[1])};
  const Recovery recovery = DecideRecovery(holdings, Of(2));
  ExpectContinues(recovery, 5, 8, {true, true}, {true, false});
  ExpectFills(recovery, holdings, Of(2));
}

TEST(Recovery, CompletesWhatATornRankHasSeenCommittedAndTakesNothingFromIt) {
  const Copies old = Of(3);
  for (int torn = 0; torn < 3; ++torn) {
    std::vector<Holding> holdings;
    for (int r = 0; r < 3; ++r) {
      holdings.push_back(r == torn ? Torn(7, old[r]) : Prepared(7, old[r]));
    }
    std::vector<bool> others(3, true);
    others[torn] = false;
    const Recovery recovery = DecideRecovery(holdings, old);
    ExpectContinues(recovery, 5, 8, others, others);
    ExpectFills(recovery, holdings, old);
  }
}

TEST(Recovery, RestoresIfOwnerAndBuddyAreTorn) {
  const Copies old = Of(3);
  ExpectLost(
      DecideRecovery(std::vector{Torn(7, old[0]), Torn(7, old[1]), Updated(7, old[2])}, old), 8,
      {0, 8});
}

TEST(Recovery, IsNotHeldUpByARankThatFellBehind) {
  const Copies older = Of(4);
  const Copies old = Of(3);
  for (const Holding& stale : {Idle(4, older[0], 4), Prepared(4, older[0], 4),
                               Idle(7, older[0], 4, 2), Idle(9, older[0], 4, 2)}) {
    ExpectContinues(DecideRecovery(std::vector{Prepared(7, old[0]), Prepared(7, old[1]), stale,
                                               Prepared(7, old[2])},
                                   Of(4)),
                    5, 8, {true, true, false, true}, {true, true, false, true});
  }
}

TEST(Recovery, TakesCopiesOfARankThatMissedAnEpochIfNothingWasCommittedMeanwhile) {
  const Copies old = Of(2, 1);
  const std::vector holdings = {Idle(7, old[0], 6), Idle(7, old[1], 5)};
  const Recovery recovery = DecideRecovery(holdings, old);
  ExpectContinues(recovery, 3, 7, {true, true}, {false, false});
  ExpectFills(recovery, holdings, old);
}

TEST(Recovery, DoesNotCompleteAStepThatALaterEpochTookBack) {
  const Copies older = Of(3);
  const Copies old = Of(2);
  ExpectContinues(DecideRecovery(std::vector{Idle(7, old[0], 6), Idle(7, old[1], 6),
                                             Prepared(7, older[2], 5)},
                                 Of(3)),
                  3, 7, {true, true, true}, {false, false, false});
}

TEST(Recovery, DoesNotCompleteAnOlderTryOfAStepBesideTheOneThatWasCommitted) {
  const Copies older = Of(3);
  const Copies old = Of(2);
  // Whether the newer try is done, torn or prepared.
  ExpectContinues(
      DecideRecovery(std::vector{Updated(7, old[0], 6), Prepared(7, older[2], 5)}, Of(2)), 6, 8,
      {true, false}, {false, false});
  ExpectLost(DecideRecovery(std::vector{Torn(7, old[0], 6), Prepared(7, older[2], 5)}, Of(2)), 8,
             {0, 12});
  ExpectContinues(
      DecideRecovery(std::vector{Prepared(7, older[2], 5), Prepared(7, old[0], 6)}, Of(2)), 6, 8,
      {false, true}, {false, true});
}

TEST(Recovery, DoesNotMixCopiesOfOneStepFromTwoLineages) {
  const Copies old = Of(2, 1);
  ExpectLost(
      DecideRecovery(std::vector{Idle(7, old[0], 6, 6), Idle(7, old[1], 5, 5)}, Of(2, 1)), 7,
      {12, 24});
  // What was restored goes before what was there until then.
  const std::vector holdings = {Idle(40, old[0], 8, 8), Idle(99, old[1], 6),
                                Idle(40, old[1], 8, 8)};
  const Recovery recovery = DecideRecovery(holdings, Of(3, 1));
  ExpectContinues(recovery, 8, 40, {true, false, true}, {false, false, false});
  ExpectFills(recovery, holdings, Of(3, 1));
}

TEST(Recovery, GoesOnWithARecoveryThatWasCutShort) {
  const Copies old = Of(3);
  const Copies half = Of(2);
  // Rank 0 has taken over its copies of epoch 6 behind the completed step; rank 1 has not yet.
  const std::vector holdings = {Idle(8, half[0], 6, 5), Updated(7, old[2]), Prepared(7, old[1])};
  const Recovery recovery = DecideRecovery(holdings, Of(3));
  ExpectContinues(recovery, 5, 8, {true, true, true}, {false, false, true});
  ExpectFills(recovery, holdings, Of(3));
}

TEST(Recovery, KeepsTheLearningRateOfTheSurvivors) {
  const Copies old = Of(2);
  std::vector holdings = {Idle(7, old[0]), Idle(4, old[1], 4)};
  holdings[0].learning_rate = 0.25;
  holdings[1].learning_rate = 0.5;
  EXPECT_EQ(DecideRecovery(holdings, Of(2)).learning_rate, 0.25);
}

// Ranks that leave are there when their copies are handed over, and keep none.
TEST(Recovery, HandsOverFromTwoRanksToThreeToOne) {
  for (const int replicas : {1, 2}) {
    std::vector<Holding> holdings(3);
    for (int r = 0; r < 2; ++r) holdings[r] = Idle(7, Of(2, replicas)[r]);
    for (const int ranks : {3, 1, 2}) {
      Copies copies = Of(ranks, replicas);
      copies.resize(3);
      const Recovery recovery = DecideRecovery(holdings, copies);
      ASSERT_EQ(recovery.way, Way::kContinue);
      ExpectFills(recovery, holdings, copies);
      for (int r = 0; r < 3; ++r) holdings[r] = Idle(7, copies[r]);
    }
  }
}

TEST(Recovery, ShrinksByOneRankAtATimeWithTwoReplicas) {
  std::vector<Holding> holdings;
  for (const std::vector<Shard>& copies : Of(5)) holdings.push_back(Idle(7, copies));
  while (holdings.size() > 1) {
    holdings.erase(holdings.begin() + static_cast<std::ptrdiff_t>(holdings.size() / 2));
    const Copies copies = Of(static_cast<int>(holdings.size()));
    const Recovery recovery = DecideRecovery(holdings, copies);
    ASSERT_EQ(recovery.way, Way::kContinue);
    ExpectFills(recovery, holdings, copies);
    for (std::size_t r = 0; r < copies.size(); ++r) holdings[r] = Idle(7, copies[r]);
  }
}

TEST(Recovery, TakesElementsFromTheLowestRankAlsoInTheMiddleOfACopy) {
  const std::vector holdings = {Idle(7, {{12, 24}}), Idle(7, {{0, 24}}), kNew};
  const Recovery recovery = DecideRecovery(holdings, Copies{{}, {}, {{0, 24}}});
  EXPECT_THAT(recovery.moves, ElementsAre(Move{1, 2, {0, 12}}, Move{0, 2, {12, 24}}));
}

TEST(Recovery, MovesFromOneCopyToOne) {
  const std::vector holdings = {Idle(7, {{12, 24}, {0, 12}}), kNew};
  EXPECT_THAT(DecideRecovery(holdings, Copies{{}, {{0, 24}}}).moves,
              ElementsAre(Move{0, 1, {0, 12}}, Move{0, 1, {12, 24}}));
}

// They may hold all of an older state.
TEST(Recovery, RestoresIfAllMissedAnEpochThatRan) {
  const Copies old = Of(2);
  const std::vector<Holding> holdings = {Idle(7, old[0]), kNew, Updated(6, old[1])};
  EXPECT_EQ(DecideRecovery(holdings, Of(3)).way, Way::kContinue);
  const Recovery recovery = DecideRecovery(holdings, Of(3), Epoch(6));
  ExpectLost(recovery, 7, {});
  EXPECT_EQ(Describe(recovery, {"w0", "w1", "w2"}),
            "cannot continue behind step 7: the job went on in epoch 6, of which no member is "
            "here");
  EXPECT_EQ(DecideRecovery(std::vector{kNew, kNew}, Of(2), Epoch(6)).way, Way::kStartAnew);
}

TEST(Describe, SaysFromWhomAndWhoIsNew) {
  const Copies old = Of(3);
  EXPECT_EQ(Describe(DecideRecovery(std::vector{Updated(7, old[0]), kNew, Prepared(7, old[2])},
                                    Of(3)),
                     {"w0", "w1", "w2"}),
            "continues behind step 8 with the state of w0, w2; completed first by w2; new: w1");
  EXPECT_EQ(Describe(DecideRecovery(std::vector{Idle(7, old[0])}, Of(1)), {"w0"}),
            "cannot continue behind step 7: nobody holds the optimizer state of elements 8 to 16");
  EXPECT_EQ(Describe(Recovery{}, {"w0"}), "starts anew");
}

}  // namespace
}  // namespace lockstep
