// Processes that are interrupted or killed.
#include <signal.h>
#include <unistd.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/e2e/e2e_cluster.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void AwaitNoProcessWith(const std::string& variable) {
  for (const absl::Time end = absl::Now() + absl::Seconds(10);
       absl::Now() < end && !ProcessesWith(variable).empty();
       absl::SleepFor(absl::Milliseconds(20))) {
  }
  EXPECT_THAT(ProcessesWith(variable), IsEmpty());
}

// Starts the demo and waits until its workers train.
struct RunningDemo {
  std::string folder = MakeFolder();
  std::string variable = absl::StrCat("LOCKSTEP_TEST_RUN=", getpid(), ".", folder);
  std::set<std::string> shared_memory = SharedMemoryFiles();
  std::unique_ptr<ChildProcess> process;

  explicit RunningDemo(const std::string& transport) {
    const absl::StatusOr<std::string> program = FindRunfile("lockstep/tools/demo/demo");
    EXPECT_THAT(program, IsOk());
    auto started = ChildProcess::Start(
        {.program = *program,
         .arguments = {"--out", folder, "--transport", transport},
         .environment = {{"LOCKSTEP_TEST_RUN", variable.substr(variable.find('=') + 1)}},
         .output_file = folder + "/demo.log"});
    EXPECT_THAT(started, IsOk());
    process = *std::move(started);
    const absl::Time end = absl::Now() + kPatience;
    while (Log().find("step ") == std::string::npos && absl::Now() < end) {
      if (process->Wait(absl::Milliseconds(20))) break;
    }
    EXPECT_THAT(Log(), HasSubstr("step "));
    EXPECT_EQ(ProcessesWith(variable).size(), 4);  // itself, coordinator, two workers
  }

  std::string Log() const { return ReadFile(folder + "/demo.log").value_or(""); }

  void ExpectNothingLeft() const {
    AwaitNoProcessWith(variable);
    EXPECT_EQ(SharedMemoryFiles(), shared_memory);
  }
};

TEST(Demo, LeavesNothingBehindAfterCtrlC) {
  for (const char* transport : {"shm", "gloo"}) {
    RunningDemo demo(transport);
    demo.process->Signal(SIGINT);
    const std::optional<ChildExit> exit = demo.process->Wait(absl::Seconds(15));
    ASSERT_TRUE(exit.has_value()) << demo.Log();
    EXPECT_EQ(exit->code, 130) << demo.Log();
    demo.ExpectNothingLeft();
  }
}

TEST(Demo, LeavesNothingBehindWhenKilled) {
  RunningDemo demo("shm");
  demo.process->Signal(SIGKILL);
  ASSERT_TRUE(demo.process->Wait(absl::Seconds(15)).has_value());
  demo.ExpectNothingLeft();
}

TEST(Worker, WithoutRejoiningEndsWithAMessageThatNamesThePeerThatWasKilled) {
  for (const std::string transport : {"shm", "gloo"}) {
    E2eCluster cluster;
    cluster.CreateJob(cluster.SpecFor("killed", 2));
    for (int i = 0; i < 2; ++i) {
      cluster.StartWorker(i, "killed", {"--transport", transport, "--epochs", "100",
                                        "--rejoin-timeout", "0"});
    }
    cluster.AwaitJob("killed", "training", [](const v1::Job& job) { return job.step() > 0; });
    cluster.processes().worker(1).Signal(SIGKILL);
    const auto ended = cluster.AwaitWorker(0);
    EXPECT_EQ(ended.exit.code, 1);
    EXPECT_THAT(ended.log, HasSubstr("worker-1")) << transport;
    cluster.AwaitJob("killed", "waiting",
                     [](const v1::Job& job) { return job.state() == v1::Job::STATE_WAITING; });

    // The job can be run again, in a later epoch.
    for (int i = 0; i < 2; ++i) {
      cluster.StartWorker(i, "killed", {"--transport", transport, "--steps", "20"});
    }
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(cluster.AwaitWorker(i).exit.ok());
    EXPECT_GE(cluster.GetJob("killed").epoch(), 2);
    EXPECT_EQ(cluster.GetJob("killed").step(), 20);
  }
}

TEST(Coordinator, ComesBackAfterKillWhileTrainingGoesOn) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("survivor", 2));
  for (int i = 0; i < 2; ++i) {
    cluster.StartWorker(i, "survivor", {"--epochs", "100", "--drift-every", "0"});
  }
  cluster.AwaitJob("survivor", "training", [](const v1::Job& job) { return job.step() > 0; });
  const std::int64_t before = cluster.GetJob("survivor").step();

  cluster.processes().coordinator().Signal(SIGKILL);
  ASSERT_TRUE(cluster.processes().coordinator().Wait(kPatience).has_value());
  LOCKSTEP_ASSERT_OK(cluster.processes().StartCoordinator());
  cluster.ConnectAgain();
  cluster.AwaitJob("survivor", "training on", [&](const v1::Job& job) {
    return job.state() == v1::Job::STATE_RUNNING && job.step() > before;
  });
  EXPECT_EQ(cluster.GetJob("survivor").epoch(), 1);

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result,
      cluster.processes().Ctl({"policy", "set", "survivor", "--every-steps", "2", "--wait"},
                              kPatience));
  EXPECT_TRUE(result.exit.ok()) << result.output;
  const v1::SyncPolicyRevision revision = cluster.GetJob("survivor").policy();
  EXPECT_EQ(revision.revision(), 2);
  EXPECT_EQ(revision.state(), v1::SyncPolicyRevision::STATE_EFFECTIVE);
  ASSERT_EQ(revision.effective_step_by_worker_size(), 2);
  EXPECT_EQ(revision.effective_step_by_worker().at("worker-0"),
            revision.effective_step_by_worker().at("worker-1"));
}

}  // namespace
}  // namespace lockstep
