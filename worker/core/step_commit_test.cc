#include "worker/core/step_commit.h"

#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::Each;

using Stage = StepCommit::Stage;

const std::vector<Shard> kCopies = {{16, 32}, {0, 16}};

// Behind step 7 with 70 samples, in epoch 5; epoch 3 has committed step 7.
StepCommit AtStep7() { return StepCommit(Epoch(3), Epoch(5), 7, 70, kCopies); }

// Begins the update of a step of 4 samples.
void Update(StepCommit& commit, bool prepares) {
  if (!prepares) return commit.BeginUpdate(4);
  commit.Prepared(4);
  commit.BeginUpdate();
}

TEST(StepCommit, BringsNothingBeforeItsFirstEpoch) {
  EXPECT_FALSE(StepCommit().holding().lineage.valid());
}

TEST(StepCommit, BringsWhatItWasGivenWhileIdle) {
  const Holding held = AtStep7().holding();
  EXPECT_EQ(held.lineage, Epoch(3));
  EXPECT_EQ(held.epoch, Epoch(5));
  EXPECT_EQ(held.step, 7);
  EXPECT_EQ(held.samples, 70);
  EXPECT_FALSE(held.prepared);
  EXPECT_EQ(held.copies, (std::array<Shard, kMaxCopies>{kCopies[0], kCopies[1]}));
}

TEST(StepCommit, BringsTheStepBeforeAndTheSamplesOfTheNextWhenPrepared) {
  StepCommit commit = AtStep7();
  commit.Prepared(4);
  EXPECT_EQ(commit.stage(), Stage::kPrepared);
  const Holding held = commit.holding();
  EXPECT_TRUE(held.prepared);
  EXPECT_EQ(held.lineage, Epoch(3));
  EXPECT_EQ(held.step, 7);
  EXPECT_EQ(held.samples, 70);
  EXPECT_EQ(held.prepared_samples, 74);
  EXPECT_EQ(held.copies, (std::array<Shard, kMaxCopies>{kCopies[0], kCopies[1]}));
}

TEST(StepCommit, BringsTheNextStepWithoutCopiesInTheMiddleOfAnUpdate) {
  for (const bool prepares : {true, false}) {
    StepCommit commit = AtStep7();
    Update(commit, prepares);
    EXPECT_EQ(commit.stage(), Stage::kUpdating);
    EXPECT_EQ(commit.step(), 7);
    const Holding held = commit.holding();
    EXPECT_EQ(held.lineage, Epoch(5)) << "the epoch that commits it";
    EXPECT_EQ(held.step, 8);
    EXPECT_EQ(held.samples, 74);
    EXPECT_FALSE(held.prepared);
    EXPECT_THAT(held.copies, Each(Shard{}));
  }
}

TEST(StepCommit, BringsTheNextStepWithItsCopiesWhenUpdated) {
  StepCommit commit = AtStep7();
  Update(commit, /*prepares=*/true);
  commit.Updated();
  EXPECT_EQ(commit.stage(), Stage::kIdle);
  EXPECT_EQ(commit.step(), 8);
  EXPECT_EQ(commit.samples(), 74);
  const Holding held = commit.holding();
  EXPECT_EQ(held.lineage, Epoch(5));
  EXPECT_EQ(held.epoch, Epoch(5));
  EXPECT_EQ(held.step, 8);
  EXPECT_EQ(held.samples, 74);
  EXPECT_FALSE(held.prepared);
  EXPECT_EQ(held.copies, (std::array<Shard, kMaxCopies>{kCopies[0], kCopies[1]}));
}

TEST(StepCommit, CountsSamplesOverStepsWithAndWithoutReplicas) {
  StepCommit commit = AtStep7();
  for (int i = 0; i < 3; ++i) {
    Update(commit, /*prepares=*/i % 2 == 0);
    commit.Updated();
  }
  EXPECT_EQ(commit.step(), 10);
  EXPECT_EQ(commit.samples(), 82);
}

TEST(StepCommitDeathTest, RefusesStagesInAnotherOrder) {
  StepCommit prepared = AtStep7();
  prepared.Prepared(1);
  EXPECT_DEATH(prepared.Prepared(1), "");
  EXPECT_DEATH(prepared.Updated(), "");
  EXPECT_DEATH(prepared.BeginUpdate(1), "");
  StepCommit updating = AtStep7();
  updating.BeginUpdate(1);
  EXPECT_DEATH(updating.Prepared(1), "");
  EXPECT_DEATH(updating.BeginUpdate(1), "");
  EXPECT_DEATH(updating.BeginUpdate(), "");
}

}  // namespace
}  // namespace lockstep
