// What a user gets who makes a mistake: a clear error, a non-zero exit, and an
// unchanged job.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/e2e/e2e_cluster.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kFailed = 1;
constexpr int kNotReachable = 3;

TEST(Worker, SaysThatTheCoordinatorIsNotReachable) {
  E2eCluster cluster;
  cluster.processes().coordinator().Stop(absl::Seconds(5));
  cluster.StartWorker(0, "job", {"--join-timeout", "3s"});
  const auto ended = cluster.AwaitWorker(0);
  EXPECT_EQ(ended.exit.code, kFailed);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("cannot reach the coordinator"),
                               HasSubstr(cluster.processes().address())));
}

TEST(Ctl, SaysThatTheCoordinatorIsNotReachable) {
  E2eCluster cluster;
  cluster.processes().coordinator().Stop(absl::Seconds(5));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result,
      cluster.processes().Ctl({"--timeout", "2s", "job", "list"}, kPatience));
  EXPECT_EQ(result.exit.code, kNotReachable);
  EXPECT_THAT(result.output, HasSubstr("cannot reach the coordinator"));
}

TEST(Coordinator, SaysThatItsPortIsTaken) {
  E2eCluster cluster;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string program,
                                FindRunfile("lockstep/coordinator/server/coordinator"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result,
      RunProgram({.program = program,
                  .arguments = {"--listen", cluster.processes().address(), "--store",
                                MakeFolder() + "/other.db"}},
                 kPatience));
  EXPECT_EQ(result.exit.code, kFailed);
  EXPECT_THAT(result.output, HasSubstr(cluster.processes().address()));
}

TEST(Worker, SaysThatTheJobIsUnknown) {
  E2eCluster cluster;
  cluster.StartWorker(0, "nonsuch");
  const auto ended = cluster.AwaitWorker(0);
  EXPECT_EQ(ended.exit.code, kFailed);
  EXPECT_THAT(ended.log, HasSubstr("there is no job 'nonsuch'"));
}

TEST(Worker, NamesTheFirstTensorThatDiffersOnEveryRank) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("differs", 2));
  cluster.StartWorker(0, "differs", {"--model", "mlp"});
  cluster.StartWorker(1, "differs", {"--model", "conv"});
  for (int i = 0; i < 2; ++i) {
    const auto ended = cluster.AwaitWorker(i);
    EXPECT_EQ(ended.exit.code, kFailed);
    EXPECT_THAT(ended.log, AllOf(HasSubstr("parameter '"), HasSubstr("worker-0"),
                                 HasSubstr("worker-1")));
  }
  EXPECT_EQ(cluster.GetJob("differs").epoch(), 0);
}

TEST(Worker, NamesTheOptimizerSettingsThatDiffer) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("differs", 2));
  cluster.StartWorker(0, "differs", {"--lr", "0.001"});
  cluster.StartWorker(1, "differs", {"--lr", "0.002"});
  for (int i = 0; i < 2; ++i) {
    const auto ended = cluster.AwaitWorker(i);
    EXPECT_EQ(ended.exit.code, kFailed);
    EXPECT_THAT(ended.log, AllOf(HasSubstr("lr=0.001"), HasSubstr("lr=0.002")));
  }
}

TEST(Worker, NamesWhoIsMissingWhenTheWorldSizeIsNotMetInTime) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("lonely", 3));
  cluster.StartWorker(1, "lonely", {"--join-timeout", "3s"});
  // Slot 0 of the list of processes is empty.
  const auto ended = cluster.AwaitWorker(1);
  EXPECT_EQ(ended.exit.code, kFailed);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("worker-0"), HasSubstr("worker-2")));
}

TEST(Worker, SaysWhatIsWrongWithItsData) {
  E2eCluster cluster;
  const std::string folder = MakeFolder();
  cluster.StartWorker(0, "job", {"--data", folder});
  EXPECT_THAT(cluster.AwaitWorker(0).log, HasSubstr("train-images-idx3-ubyte"));
  EXPECT_EQ(cluster.AwaitWorker(0).exit.code, kFailed);

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string real, FindMnist());
  for (const auto& entry : std::filesystem::directory_iterator(real)) {
    std::filesystem::copy_file(std::filesystem::canonical(entry.path()),
                               folder + "/" + entry.path().filename().string());
  }
  const std::string labels = folder + "/train-labels-idx1-ubyte";
  std::filesystem::permissions(labels, std::filesystem::perms::owner_all);
  std::filesystem::resize_file(labels, 100);
  cluster.StartWorker(0, "job", {"--data", folder});
  EXPECT_THAT(cluster.AwaitWorker(0).log, HasSubstr("train-labels-idx1-ubyte"));
  EXPECT_EQ(cluster.AwaitWorker(0).exit.code, kFailed);
}

TEST(Worker, SaysThatItsModelFileIsNoModel) {
  E2eCluster cluster;
  const std::string path = MakeFolder() + "/model.pt";
  std::ofstream(path) << "not a model";
  cluster.StartWorker(0, "job", {"--model", path});
  const auto ended = cluster.AwaitWorker(0);
  EXPECT_EQ(ended.exit.code, kFailed);
  EXPECT_THAT(ended.log, HasSubstr(path));
}

// Policies are refused while the job trains, and the job does not notice.
TEST(Policy, IsRefusedWithAReasonAndChangesNothing) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("train", 2));
  for (int i = 0; i < 2; ++i) {
    cluster.StartWorker(i, "train", {"--epochs", "100", "--drift-every", "0"});
  }
  cluster.AwaitJob("train", "training", [](const v1::Job& job) { return job.step() > 0; });

  const auto set = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"policy", "set", "train"});
    const absl::StatusOr<RunResult> result = cluster.processes().Ctl(flags, kPatience);
    EXPECT_THAT(result, IsOk());
    EXPECT_EQ(result->exit.code, kFailed) << result->output;
    return result->output;
  };
  EXPECT_THAT(set({"--allow", "re:("}), AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("re:(")));
  EXPECT_THAT(set({"--allow", "**.runing_mean"}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("**.runing_mean"),
                    HasSubstr("running_mean")));
  EXPECT_THAT(set({"--every-steps", "-3"}), HasSubstr("every_steps"));
  EXPECT_THAT(set({"--no-broadcast-buffers", "--etag", "stale"}), HasSubstr("ABORTED"));

  const v1::Job job = cluster.GetJob("train");
  EXPECT_EQ(job.policy().revision(), 1);
  EXPECT_EQ(job.log_number(), 0);
  EXPECT_EQ(job.state(), v1::Job::STATE_RUNNING);

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const RunResult unknown,
                                cluster.processes().Ctl({"policy", "get", "nonsuch"}, kPatience));
  EXPECT_EQ(unknown.exit.code, kFailed);
  EXPECT_THAT(unknown.output, HasSubstr("nonsuch"));
}

}  // namespace
}  // namespace lockstep
