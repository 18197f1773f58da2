#include "common/sharding/replicas.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kElements = 24;

ShardPlan PlanOf(int ranks) {
  ShardPlan plan;
  for (int r = 0; r < ranks; ++r) {
    plan.shards.push_back({kElements * r / ranks, kElements * (r + 1) / ranks});
  }
  return plan;
}

// The first 12 elements float32, the others of two bytes.
ShardPlan MixedPlanOf(int ranks) {
  ShardPlan plan = PlanOf(ranks);
  plan.blocks = {{DType::kFloat32, 0, 12}, {DType::kBfloat16, 12, kElements}};
  return plan;
}

TEST(CopiesOf, GivesEachRankItsShardAndWithTwoReplicasThatOfTheRankBefore) {
  EXPECT_THAT(CopiesOf(PlanOf(3), 1),
              ElementsAre(ElementsAre(Shard{0, 8}), ElementsAre(Shard{8, 16}),
                          ElementsAre(Shard{16, 24})));
  EXPECT_THAT(CopiesOf(PlanOf(3), 2), ElementsAre(ElementsAre(Shard{0, 8}, Shard{16, 24}),
                                                  ElementsAre(Shard{8, 16}, Shard{0, 8}),
                                                  ElementsAre(Shard{16, 24}, Shard{8, 16})));
  EXPECT_THAT(CopiesOf(PlanOf(1), 2), ElementsAre(ElementsAre(Shard{0, 24})));
}

TEST(BuddyOf, IsTheNextRankIfThereAreReplicasAndAnotherRank) {
  EXPECT_EQ(BuddyOf(0, 3, 2), 1);
  EXPECT_EQ(BuddyOf(2, 3, 2), 0);
  EXPECT_EQ(BuddyOf(2, 3, 1), -1);
  EXPECT_EQ(BuddyOf(0, 1, 2), -1);
}

TEST(OwnersKeptBy, AreTheRankAndTheOneBeforeItIfItIsABuddy) {
  EXPECT_THAT(OwnersKeptBy(1, 3, 1), ElementsAre(1));
  EXPECT_THAT(OwnersKeptBy(1, 3, 2), ElementsAre(1, 0));
  EXPECT_THAT(OwnersKeptBy(0, 3, 2), ElementsAre(0, 2));
  EXPECT_THAT(OwnersKeptBy(0, 1, 2), ElementsAre(0));
}

TEST(HandOversOf, GiveEachShardToTheNextRankThatDoesNotKeepIt) {
  EXPECT_THAT(HandOversOf(1, PlanOf(4), 1), ElementsAre(HandOver{1, 2}));
  EXPECT_THAT(HandOversOf(3, PlanOf(4), 1), ElementsAre(HandOver{3, 0}));
  EXPECT_THAT(HandOversOf(1, PlanOf(4), 2), ElementsAre(HandOver{0, 2}, HandOver{1, 3}));
  EXPECT_THAT(HandOversOf(0, PlanOf(3), 2), ElementsAre(HandOver{0, 2}, HandOver{2, 1}));
}

TEST(HandOversOf, IsNothingWhereAllOthersKeepTheShard) {
  EXPECT_THAT(HandOversOf(1, PlanOf(2), 2), IsEmpty());
  EXPECT_THAT(HandOversOf(0, PlanOf(1), 1), IsEmpty());
  EXPECT_THAT(HandOversOf(0, PlanOf(1), 2), IsEmpty());
}

// What it is for: one more may be lost at once.
TEST(HandOversOf, LeaveEachShardWithTwoOthers) {
  for (int ranks = 3; ranks <= 6; ++ranks) {
    for (int drained = 0; drained < ranks; ++drained) {
      std::vector<int> keepers(ranks), gets(ranks);
      for (int owner = 0; owner < ranks; ++owner) {
        for (const int r : {owner, BuddyOf(owner, ranks, 2)}) keepers[owner] += r != drained;
      }
      for (const HandOver& each : HandOversOf(drained, PlanOf(ranks), 2)) {
        ASSERT_NE(each.to, drained);
        ASSERT_NE(each.to, each.owner);
        ASSERT_NE(each.to, BuddyOf(each.owner, ranks, 2));
        ++keepers[each.owner];
        EXPECT_LE(++gets[each.to], 1);
      }
      EXPECT_THAT(keepers, testing::Each(2)) << ranks << " ranks, rank " << drained << " drained";
    }
  }
}

constexpr std::int64_t kAdam = 8;  // bytes an element

TEST(StateBytes, AreThoseOfTheOwnShardAndWithABuddyOfItsShardAndParametersToo) {
  ShardPlan plan = PlanOf(3);
  plan.blocks = {{DType::kFloat32, 0, kElements}};
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(StateBytes(plan, r, 1, kAdam), 8 * kAdam);
    EXPECT_EQ(StateBytes(plan, r, 2, kAdam), 16 * kAdam + 8 * 4);
  }
  EXPECT_EQ(StateBytes(PlanOf(1), 0, 2, kAdam), 24 * kAdam) << "alone there is no buddy";
}

TEST(StateBytes, HaveMastersOfShortTypes) {
  const ShardPlan plan = MixedPlanOf(3);  // 8 float32; 4 and 4 short; 8 short
  EXPECT_EQ(StateBytes(plan, 0, 1, kAdam), 8 * kAdam);
  EXPECT_EQ(StateBytes(plan, 1, 1, kAdam), 8 * kAdam + 4 * 4);
  EXPECT_EQ(StateBytes(plan, 2, 1, kAdam), 8 * kAdam + 8 * 4);
  EXPECT_EQ(StateBytes(plan, 0, 2, kAdam), 16 * kAdam + 8 * 4 + 8 * 2);
  EXPECT_EQ(StateBytes(plan, 2, 2, kAdam), 16 * kAdam + 12 * 4 + 4 * 4 + 4 * 2);
}

TEST(ElementBytesOf, IsTheInverseOfStateBytes) {
  for (const int replicas : {1, 2}) {
    for (int r = 0; r < 3; ++r) {
      const std::int64_t bytes = StateBytes(MixedPlanOf(3), r, replicas, kAdam);
      EXPECT_EQ(ElementBytesOf(MixedPlanOf(3), r, replicas, bytes), kAdam);
    }
  }
}

TEST(BytesSentInStep, AreGradientsToOwnersParametersToAllAndSumsToTheBuddy) {
  ShardPlan plan = PlanOf(3);
  plan.blocks = {{DType::kFloat32, 0, kElements}};
  EXPECT_EQ(BytesSentInStep(plan, 0, 1), 16 * 4 + 2 * 8 * 4);
  EXPECT_EQ(BytesSentInStep(plan, 0, 2), 16 * 4 + 2 * 8 * 4 + 8 * 4);
  const ShardPlan mixed = MixedPlanOf(2);  // 12 float32; 12 short
  EXPECT_EQ(BytesSentInStep(mixed, 0, 1), 12 * 2 + 12 * 4);
  EXPECT_EQ(BytesSentInStep(mixed, 1, 2), 12 * 4 + 12 * 2 + 12 * 4);
  EXPECT_EQ(BytesSentInStep(PlanOf(1), 0, 2), 0);
}

// Models and claims of which nobody could hold a byte, but which are announced.
TEST(Costs, StopAtTheLargestNumber) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  ShardPlan plan;
  plan.flat_elements = 2 * kHuge;
  plan.blocks = {{DType::kBfloat16, 0, 2 * kHuge}};
  plan.shards = {{0, kHuge}, {kHuge, 2 * kHuge}};
  for (const int replicas : {1, 2}) {
    EXPECT_EQ(StateBytes(plan, 0, replicas, kAdam), kMost);
    EXPECT_EQ(StateBytes(plan, 0, replicas, kMost), kMost);
    EXPECT_EQ(BytesSentInStep(plan, 0, replicas), kMost);
    EXPECT_EQ(ElementBytesOf(plan, 0, replicas, 1), 0);
  }
}

}  // namespace
}  // namespace lockstep
