// Workers and the coordinator are lost in the middle of training, and training goes on: to the
// parameters that one process gets that takes the same steps.
//
// A worker that is to be lost kills itself in a phase of a step (--end-at): so each phase is met.
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/chaos/epoch_history.h"
#include "tests/chaos/serial_training.h"
#include "tests/e2e/e2e_cluster.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kWorkers = 4;
constexpr char kJob[] = "recovering";
// On an idle machine it is below one second. Machines that run tests are not idle.
constexpr double kMostSecondsWithoutAStep = 5;

// A job of four workers whose optimizer state is kept twice.
class RecoveringJob {
 public:
  // `join_window`: how long others wait for a worker that is missing, also one that comes back.
  RecoveringJob(const std::string& transport, std::int64_t steps, int min_workers,
                absl::Duration join_window = absl::Minutes(1))
      : steps_(steps),
        flags_({"--transport", transport, "--steps", absl::StrCat(steps), "--drift-every", "0",
                "--operation-timeout", "20s"}) {
    v1::JobSpec spec = cluster_.SpecFor(kJob, kWorkers);
    spec.set_min_workers(min_workers);
    spec.set_max_workers(kWorkers);
    spec.set_optimizer_replicas(2);
    spec.mutable_lease()->set_seconds(4);
    spec.mutable_join_window()->set_seconds(absl::ToInt64Seconds(join_window));
    cluster_.CreateJob(spec);
  }

  ~RecoveringJob() {
    cluster_.processes().Stop();
    EXPECT_EQ(SharedMemoryFiles(), shared_memory_);
  }

  void Start(int index, std::vector<std::string> more = {}) {
    more.insert(more.end(), flags_.begin(), flags_.end());
    cluster_.StartWorker(index, kJob, more);
  }

  void AwaitTraining(std::size_t members) {
    cluster_.AwaitJob(kJob, absl::StrCat("training by ", members), [&](const v1::Job& job) {
      const auto workers = cluster_.client().ListWorkers(kJob);
      return workers.ok() && job.state() == v1::Job::STATE_RUNNING && job.step() > 0 &&
             std::ranges::count(*workers, v1::Worker::STATE_TRAINING, &v1::Worker::state) ==
                 static_cast<std::ptrdiff_t>(members);
    });
  }

  void ExpectKilled(int index) {
    const auto ended = cluster_.AwaitWorker(index);
    EXPECT_EQ(ended.exit.signal, SIGKILL) << ended.log;
  }

  // The workers `last` end well and say the same as each other, and the steps that all workers tell
  // of give these parameters. What they tell.
  EpochHistory ExpectRightEnd(const std::set<int>& last) {
    EpochHistory history;
    std::string digest;
    for (const int i : last) {
      const auto ended = cluster_.AwaitWorker(i);
      EXPECT_TRUE(ended.exit.ok()) << LocalCluster::WorkerName(i) << ": " << ended.log;
      if (!ended.exit.ok()) return history;
      const nlohmann::json report = cluster_.Report(i);
      EXPECT_EQ(report.at("steps"), steps_);
      if (digest.empty()) digest = report.at("parameter_digest");
      EXPECT_EQ(report.at("parameter_digest"), digest) << LocalCluster::WorkerName(i);
    }
    for (int i = 0; i < kWorkers; ++i) {
      EXPECT_THAT(history.Add(LocalCluster::WorkerName(i), cluster_.Report(i)), IsOk());
    }
    const auto serial = SerialTraining::Create(E2eCluster::TrainerFlags(flags_));
    EXPECT_THAT(serial, IsOk());
    if (!serial.ok()) return history;
    EXPECT_THAT(history.Replay(steps_, digest, **serial), IsOk());
    for (const auto& [number, epoch] : history.epochs()) {
      std::cout << "epoch " << number << " of " << epoch.world_size << " ranks, behind step "
                << epoch.step << ": " << epoch.stall_seconds.value_or(0) << " s without a step\n";
    }
    return history;
  }

  E2eCluster& cluster() { return cluster_; }

 private:
  const std::set<std::string> shared_memory_ = SharedMemoryFiles();
  const std::int64_t steps_;
  const std::vector<std::string> flags_;
  E2eCluster cluster_;
};

// ---- one worker after the other ----

// The phases in which workers 1, 3 and 0 are lost, in steps 20, 40 and 60.
struct Losses {
  std::string transport;
  std::vector<std::string> phases;
};

void PrintTo(const Losses& losses, std::ostream* out) {
  *out << losses.transport << ": " << absl::StrJoin(losses.phases, ", ");
}

class Worker : public testing::TestWithParam<Losses> {};

TEST_P(Worker, LostInAStepCostsNeitherStateNorACommittedStep) {
  const std::vector<int> lost = {1, 3, 0};
  const std::set<std::string> not_committed = {"forward", "collected", "agreed", "reducing",
                                               "preparing"};
  RecoveringJob job(GetParam().transport, /*steps=*/80, /*min_workers=*/1);
  for (int i = 0; i < kWorkers; ++i) {
    const auto at = std::ranges::find(lost, i);
    std::vector<std::string> flags;
    if (at != lost.end()) {
      const auto order = at - lost.begin();
      flags = {"--end-at", absl::StrCat(GetParam().phases[order], ":", 20 * (order + 1))};
    }
    job.Start(i, flags);
  }
  for (const int i : lost) job.ExpectKilled(i);
  const EpochHistory history = job.ExpectRightEnd({2});

  // Where the losses fell; a worker that started late makes an epoch more.
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const std::string& phase = GetParam().phases[i];
    const std::int64_t under_way = 20 * (static_cast<std::int64_t>(i) + 1);
    const auto next = std::ranges::find_if(history.epochs(), [&](const auto& epoch) {
      return epoch.second.step >= under_way;
    });
    ASSERT_NE(next, history.epochs().end());
    EXPECT_EQ(next->second.world_size, kWorkers - 1 - static_cast<int>(i)) << phase;
    if (phase == "prepared") continue;  // whether all others had, too, is not known
    EXPECT_EQ(next->second.step, under_way + (not_committed.contains(phase) ? 0 : 1)) << phase;
  }
  EXPECT_LT(history.longest_stall_seconds(), kMostSecondsWithoutAStep);
}

INSTANTIATE_TEST_SUITE_P(
    Some, Worker,
    testing::Values(Losses{"shm", {"collected", "updating", "prepared"}},
                    Losses{"gloo", {"committed", "agreed", "spreading"}}),
    [](const auto& info) { return info.param.transport; });

INSTANTIATE_TEST_SUITE_P(
    All, Worker,
    testing::Values(Losses{"shm", {"committed", "agreed", "spreading"}},
                    Losses{"shm", {"preparing", "forward", "reducing"}},
                    Losses{"shm", {"spreading", "applying", "committed"}},
                    Losses{"shm", {"prepared", "collected", "updating"}},
                    Losses{"gloo", {"collected", "updating", "prepared"}},
                    Losses{"gloo", {"preparing", "forward", "reducing"}},
                    Losses{"gloo", {"spreading", "applying", "committed"}},
                    Losses{"gloo", {"prepared", "collected", "updating"}}),
    [](const auto& info) {
      return absl::StrCat(info.param.transport, "_", absl::StrJoin(info.param.phases, "_"));
    });

// ---- others ----

class Member : public testing::TestWithParam<std::string> {};

TEST_P(Member, OwnerAndBuddyLostTogetherEndTheJobWithTheStateThatIsGone) {
  RecoveringJob job(GetParam(), /*steps=*/60, /*min_workers=*/2);
  for (int i = 0; i < kWorkers; ++i) {
    const bool is_lost = i == 1 || i == 2;
    job.Start(i, is_lost ? std::vector<std::string>{"--end-at", "agreed:20"}
                         : std::vector<std::string>{});
  }
  for (const int i : {1, 2}) job.ExpectKilled(i);
  for (const int i : {0, 3}) {
    const auto ended = job.cluster().AwaitWorker(i);
    EXPECT_EQ(ended.exit.code, 1);
    EXPECT_THAT(ended.log, AllOf(HasSubstr("DATA_LOSS"), HasSubstr("checkpoint")));
  }
}

TEST_P(Member, OwnerAndBuddyLostTogetherGoBackToTheLastCheckpointAndSaySo) {
  const std::string directory = MakeFolder() + "/checkpoints";
  RecoveringJob job(GetParam(), /*steps=*/60, /*min_workers=*/2);
  for (int i = 0; i < kWorkers; ++i) {
    std::vector<std::string> flags = {"--checkpoint-dir", directory, "--checkpoint-every", "10"};
    if (i == 1 || i == 2) flags.insert(flags.end(), {"--end-at", "agreed:35"});
    job.Start(i, flags);
  }
  for (const int i : {1, 2}) job.ExpectKilled(i);
  const std::string log = job.cluster().AwaitWorker(0).log;
  const EpochHistory history = job.ExpectRightEnd({0, 3});
  ASSERT_FALSE(history.epochs().empty());
  const EpochHistory::Epoch& last = history.epochs().rbegin()->second;
  EXPECT_EQ(last.world_size, kWorkers - 2);
  // A disk may be slow, but not by so much.
  EXPECT_THAT(last.step, AnyOf(10, 20, 30)) << log;
  EXPECT_THAT(log, HasSubstr(absl::StrCat("all go back to the checkpoint of step ", last.step)));
}

TEST_P(Member, AndCoordinatorLostTogetherAreMissedOnlyUntilItIsBack) {
  RecoveringJob job(GetParam(), /*steps=*/600, /*min_workers=*/3);
  for (int i = 0; i < kWorkers; ++i) job.Start(i);
  job.AwaitTraining(kWorkers);
  LocalCluster& processes = job.cluster().processes();
  processes.coordinator().Signal(SIGKILL);
  ASSERT_TRUE(processes.coordinator().Wait(kPatience).has_value());
  processes.worker(1).Signal(SIGKILL);
  job.ExpectKilled(1);
  LOCKSTEP_ASSERT_OK(processes.StartCoordinator());
  const EpochHistory history = job.ExpectRightEnd({0, 2, 3});
  ASSERT_FALSE(history.epochs().empty());
  EXPECT_EQ(history.epochs().rbegin()->second.world_size, 3);
}

TEST_P(Member, StoppedForLongerThanItsLeaseComesBackAsANewOne) {
  // Enough to come back, and no more than a busy machine can take in time.
  const std::int64_t steps = GetParam() == "shm" ? 1500 : 600;
  RecoveringJob job(GetParam(), steps, /*min_workers=*/3, absl::Seconds(1));
  for (int i = 0; i < kWorkers; ++i) job.Start(i);
  job.AwaitTraining(kWorkers);
  job.cluster().processes().worker(2).Signal(SIGSTOP);
  job.AwaitTraining(kWorkers - 1);
  job.cluster().processes().worker(2).Signal(SIGCONT);
  job.AwaitTraining(kWorkers);
  const EpochHistory history = job.ExpectRightEnd({0, 1, 2, 3});
  ASSERT_FALSE(history.epochs().empty());
  EXPECT_EQ(history.epochs().rbegin()->second.world_size, kWorkers);
}

INSTANTIATE_TEST_SUITE_P(Transports, Member, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
