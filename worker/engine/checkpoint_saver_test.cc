// Checkpoints of whole worlds: written while training goes on, and begun from by as many ranks as
// there are then.
#include "worker/engine/checkpoint_saver.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/file_system.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kWeights = 300;
const OptimizerConfig kOptimizer = AdamW{.lr = 0.05};

void AddTensors(VectorModel& model) {
  std::vector<float> weights(kWeights);
  for (std::int64_t i = 0; i < kWeights; ++i) weights[i] = 0.01f * static_cast<float>(i % 97);
  model.AddParameter("fc.weight", std::move(weights));
  model.AddFrozenParameter("embedding", {1, 2, 3});
  model.AddBuffer<float>("bn.running_mean", {0, 0});
}

// The same sum of gradients for any number of ranks: sixths of it are exact.
void Backward(VectorModel& model, std::int64_t step, int ranks) {
  const std::span<float> gradient = model.gradient("fc.weight");
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto sum = static_cast<float>((static_cast<std::int64_t>(i) * 5 + step * 11) % 29 - 14);
    gradient[i] = 6 * sum / static_cast<float>(ranks);
  }
}

std::vector<float> Weights(VectorModel& model) {
  const std::span<const float> values = model.parameter("fc.weight");
  return {values.begin(), values.end()};
}

class CheckpointSaverTest : public testing::Test {
 protected:
  CheckpointSaverTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    options_.directory = folder_ + "/checkpoints";
  }

  // A new world of `size` ranks trains until step `until`; the end of rank 0.
  absl::Status Train(int size, std::int64_t until, int replicas = 1, bool saves_at_end = true) {
    world_ = std::make_unique<ThreadedWorld>(size);
    world_->optimizer_replicas = replicas;
    for (int rank = 0; rank < size; ++rank) {
      AddTensors(world_->model(rank));
      world_->saver(rank) = std::make_shared<CheckpointSaver>(options_, &files_);
    }
    world_->Propose({});
    std::vector<absl::Status> ends(size);
    world_->Run([&](int rank) {
      ends[rank] = world_->Join(rank, kOptimizer);
      if (!ends[rank].ok()) return;
      Engine& engine = world_->engine(rank);
      if (rank == 0) began_at_ = engine.step();
      while (ends[rank].ok() && engine.step() < until) {
        world_->model(rank).SetBuffer<float>(
            "bn.running_mean", {static_cast<float>(engine.step() + 1), 7});
        Backward(world_->model(rank), engine.step(), size);
        ends[rank] = engine.Step({.samples = 6 / size, .loss = LossReduction::kSum});
        if (!saves_at_end) world_->saver(rank)->Await();  // as if disks were faster than steps
      }
      if (ends[rank].ok() && saves_at_end) ends[rank] = engine.SaveCheckpoint();
    });
    return ends[0];
  }

  FileSystem& files_ = HostFileSystem();
  std::string folder_;
  CheckpointOptions options_ = {.job = "j"};
  std::unique_ptr<ThreadedWorld> world_;
  std::int64_t began_at_ = -1;
};

TEST_F(CheckpointSaverTest, TwoThenThreeThenOneRankEndLikeARunThatWasNotInterrupted) {
  for (const int replicas : {1, 2}) {
    options_.directory = absl::StrCat(folder_, "/", replicas);
    LOCKSTEP_ASSERT_OK(Train(2, 4, replicas));
    EXPECT_EQ(began_at_, 0);
    LOCKSTEP_ASSERT_OK(Train(3, 9, replicas));
    EXPECT_EQ(began_at_, 4);
    EXPECT_EQ(world_->engine(2).samples(), 54);
    EXPECT_EQ(world_->model(2).buffer<float>("bn.running_mean"), (std::vector<float>{9, 7}));
    LOCKSTEP_ASSERT_OK(Train(1, 12, replicas));
    EXPECT_EQ(began_at_, 9);
    const std::vector<float> resumed = Weights(world_->model(0));
    options_.directory = absl::StrCat(folder_, "/whole", replicas);
    LOCKSTEP_ASSERT_OK(Train(1, 12, replicas));
    EXPECT_EQ(began_at_, 0);
    EXPECT_EQ(Weights(world_->model(0)), resumed);
  }
}

TEST_F(CheckpointSaverTest, ScheduledOnesAreFinishedBehindLaterSteps) {
  options_.every_steps = 3;
  options_.keep = 2;
  LOCKSTEP_ASSERT_OK(Train(2, 11, 1, /*saves_at_end=*/false));
  world_.reset();  // waits for files
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::int64_t latest,
                                FindLatest(files_, options_.directory));
  EXPECT_EQ(latest, 9) << "behind step 10 all knew that all had written their parts";
  EXPECT_THAT(ReadManifest(files_, options_.directory, 3).status(),
              StatusIs(absl::StatusCode::kNotFound));
  LOCKSTEP_EXPECT_OK(ReadManifest(files_, options_.directory, 6).status());
  LOCKSTEP_ASSERT_OK(Train(2, 12));
  EXPECT_EQ(began_at_, 9);
}

TEST_F(CheckpointSaverTest, WhatIsDamagedBehindTheNewestIsRemovedAndWrittenAnew) {
  LOCKSTEP_ASSERT_OK(Train(2, 4));
  LOCKSTEP_ASSERT_OK(Train(2, 6));
  std::ofstream(options_.directory + "/step-000000000006/manifest.json") << "{";
  LOCKSTEP_ASSERT_OK(Train(3, 6));
  EXPECT_EQ(began_at_, 4);
  LOCKSTEP_ASSERT_OK(Train(1, 7));
  EXPECT_EQ(began_at_, 6);
}

TEST_F(CheckpointSaverTest, AnotherModelOrOptimizerIsRefusedByName) {
  LOCKSTEP_ASSERT_OK(Train(1, 2));
  ThreadedWorld other(1);
  other.saver(0) = std::make_shared<CheckpointSaver>(options_, &files_);
  other.model(0).AddParameter("fc.weight", std::vector<float>(kWeights / 2));
  other.Propose({});
  EXPECT_THAT(other.Join(0, kOptimizer),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("trainable parameters")));
  ThreadedWorld sgd(1);
  sgd.saver(0) = std::make_shared<CheckpointSaver>(options_, &files_);
  AddTensors(sgd.model(0));
  sgd.Propose({});
  EXPECT_THAT(sgd.Join(0, Sgd{.lr = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("AdamW")));
}

// As where a member of an epoch comes anew, behind a step that the others have saved.
TEST_F(CheckpointSaverTest, WhatIsSavedAlreadyIsNotSavedAgain) {
  LOCKSTEP_ASSERT_OK(Train(2, 4));
  const auto saved_again = [&] {
    std::vector<absl::Status> ends(2);
    world_->Run([&](int rank) { ends[rank] = world_->engine(rank).SaveCheckpoint(); });
    LOCKSTEP_EXPECT_OK(ends[1]);
    return ends[0];
  };
  const std::string manifest = options_.directory + "/step-000000000004/manifest.json";
  const auto written = std::filesystem::last_write_time(manifest);
  LOCKSTEP_EXPECT_OK(saved_again());
  EXPECT_EQ(std::filesystem::last_write_time(manifest), written);
  // All ranks go by the same word: what is on disk.
  std::filesystem::remove_all(options_.directory);
  LOCKSTEP_EXPECT_OK(saved_again());
  EXPECT_TRUE(std::filesystem::exists(manifest));
}

TEST_F(CheckpointSaverTest, WithoutADirectoryThereIsNone) {
  ThreadedWorld world(1);
  AddTensors(world.model(0));
  world.Propose({});
  LOCKSTEP_ASSERT_OK(world.Join(0, kOptimizer));
  EXPECT_THAT(world.engine(0).SaveCheckpoint(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("directory")));
}

}  // namespace
}  // namespace lockstep
