// Runs that nobody disturbs compute what SerialTraining does, bit for bit: that it may stand for
// them where runs are disturbed.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/chaos/epoch_history.h"
#include "tests/chaos/serial_training.h"
#include "tests/e2e/e2e_cluster.h"

namespace lockstep {
namespace {

constexpr int kSteps = 25;

class Undisturbed : public testing::TestWithParam<std::string> {};

TEST_P(Undisturbed, RunsOfOneToFourWorkersAreBitEqualToSerialTraining) {
  const std::vector<std::string> flags = {"--transport", GetParam(), "--model", "conv",
                                          "--steps", absl::StrCat(kSteps), "--drift-every", "0"};
  E2eCluster cluster;
  for (int workers = 1; workers <= 4; ++workers) {
    const std::string job = absl::StrCat("job-", workers);
    v1::JobSpec spec = cluster.SpecFor(job, workers);
    spec.set_optimizer_replicas(1 + workers % 2);
    cluster.CreateJob(spec);
    for (int i = 0; i < workers; ++i) cluster.StartWorker(i, job, flags);
    for (int i = 0; i < workers; ++i) {
      const auto ended = cluster.AwaitWorker(i);
      ASSERT_TRUE(ended.exit.ok()) << ended.log;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SerialTraining> serial,
                                    SerialTraining::Create(E2eCluster::TrainerFlags(flags)));
      EpochHistory history;
      LOCKSTEP_ASSERT_OK(history.Add(LocalCluster::WorkerName(i), cluster.Report(i)));
      EXPECT_EQ(history.epochs().size(), 1u);
      EXPECT_EQ(history.epochs().begin()->second.world_size, workers);
      EXPECT_THAT(history.Replay(kSteps, cluster.Report(i)["parameter_digest"], *serial), IsOk())
          << workers << " workers";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Undisturbed, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
