// Checkpoints of real processes: written by schedule and on command, resumed by another number of
// workers, and exported.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/e2e/e2e_cluster.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// Trains job `job` with `workers` until `steps`; each worker's exit is checked.
void Train(E2eCluster& cluster, const std::string& job, int workers, int steps,
           const std::string& directory) {
  cluster.CreateJob(cluster.SpecFor(job, workers));
  for (int i = 0; i < workers; ++i) {
    cluster.StartWorker(i, job, {"--steps", absl::StrCat(steps), "--checkpoint-dir", directory,
                                 "--checkpoint-every", "5", "--checkpoint-keep", "0"});
  }
  for (int i = 0; i < workers; ++i) {
    const E2eCluster::Ended ended = cluster.AwaitWorker(i);
    EXPECT_TRUE(ended.exit.ok()) << ended.log;
  }
}

TEST(Checkpoints, AreResumedByAnotherNumberOfWorkersAndExported) {
  E2eCluster cluster;
  const std::string directory = MakeFolder() + "/checkpoints";
  Train(cluster, "two", 2, 12, directory);
  Train(cluster, "three", 3, 20, directory);
  EXPECT_EQ(cluster.GetJob("three").step(), 20);
  EXPECT_EQ(cluster.Report(2)["epochs"][0]["step"], 12) << "where the first job ended";
  Train(cluster, "one", 1, 22, directory);

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      RunResult result, cluster.processes().Ctl({"checkpoint", "list", directory}, kPatience));
  EXPECT_TRUE(result.exit.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("22"));
  const std::string file = MakeFolder() + "/model.pt";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      result,
      cluster.processes().Ctl({"checkpoint", "export", directory, "--out", file}, kPatience));
  EXPECT_TRUE(result.exit.ok()) << result.output;
  EXPECT_GT(std::filesystem::file_size(file), 1000u);
}

TEST(Checkpoints, AreMadeOnCommand) {
  E2eCluster cluster;
  const std::string directory = MakeFolder() + "/checkpoints";
  cluster.CreateJob(cluster.SpecFor("commanded", 2));
  for (int i = 0; i < 2; ++i) {
    cluster.StartWorker(i, "commanded", {"--epochs", "100", "--checkpoint-dir", directory});
  }
  cluster.AwaitJob("commanded", "training", [](const v1::Job& job) { return job.step() > 0; });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      RunResult result,
      cluster.processes().Ctl({"job", "checkpoint", "commanded", "--wait"}, kPatience));
  EXPECT_TRUE(result.exit.ok()) << result.output;
  const std::int64_t step = cluster.GetJob("commanded").step();
  // It is finished behind a later step.
  cluster.AwaitJob("commanded", "further", [&](const v1::Job& job) {
    const auto listed = cluster.processes().Ctl({"checkpoint", "list", directory}, kPatience);
    return job.step() > step && listed.ok() &&
           listed->output.find("complete") != std::string::npos &&
           listed->output.find("incomplete") == std::string::npos;
  });
}

}  // namespace
}  // namespace lockstep
