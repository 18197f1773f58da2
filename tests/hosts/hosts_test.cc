// Jobs over three hosts whose links are slow, lose frames, and are cut.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/e2e/e2e_cluster.h"
#include "tests/hosts/hosts_cluster.h"
#include "tests/hosts/world_fixture.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Hosts : public WorldTest {};

// Waits until the worker tells of `more` evaluations.
void AwaitEvaluations(const HostsCluster& cluster, int worker, int more) {
  const auto count = [&] {
    const std::vector<std::string> pieces =
        absl::StrSplit(cluster.WorkerLog(worker), "test accuracy");
    return static_cast<int>(pieces.size());
  };
  const int before = count();
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(20))) {
    if (count() >= before + more) return;
  }
  FAIL() << "w" << worker << " did not go on: " << cluster.WorkerLog(worker);
}

constexpr int kSteps = 16;

// Of a job of as many ranks on one host, in shared memory; by rank.
std::vector<nlohmann::json> ReportsOfOneHost(const std::vector<std::string>& trainer_flags) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("alone", kWorkers));
  for (int i = 0; i < kWorkers; ++i) cluster.StartWorker(i, "alone", trainer_flags);
  std::vector<nlohmann::json> reports;
  for (int i = 0; i < kWorkers; ++i) {
    EXPECT_TRUE(cluster.AwaitWorker(i).exit.ok());
    reports.push_back(cluster.Report(i));
  }
  return reports;
}

void ExpectBitsOfOneHost(const LineQuality& quality) {
  const std::vector<std::string> flags = {"--steps", absl::StrCat(kSteps), "--drift-every", "0"};
  HostsCluster cluster({"--min-workers", absl::StrCat(kWorkers)}, flags, quality);
  ASSERT_NO_FATAL_FAILURE(cluster.StartWorkers());
  const std::vector<nlohmann::json> reports = cluster.ExpectEqualEnds();
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].at("steps"), kSteps);
  EXPECT_EQ(reports[0].at("epochs").size(), 1);
  static const auto* const alone = new std::vector<nlohmann::json>(ReportsOfOneHost(flags));
  for (int i = 0; i < kWorkers; ++i) {
    EXPECT_EQ(reports[i].at("parameter_digest"), alone->at(i).at("parameter_digest")) << i;
    EXPECT_EQ(reports[i].at("buffer_digest"), alone->at(i).at("buffer_digest")) << i;
  }

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto traffic, cluster.network().Unplug());
  for (const auto& [host, frames] : traffic) {
    std::cout << host << ": " << frames.passed << " frames passed, " << frames.lost << " lost\n";
    EXPECT_GT(frames.passed, 100) << host;
    if (host == kCoordinatorHost) continue;  // too few frames to speak of a share
    EXPECT_NEAR(frames.lost, quality.loss * (frames.passed + frames.lost),
                0.5 * quality.loss * frames.passed)
        << host;
  }
}

TEST_F(Hosts, TrainToTheBitsOfOneHost) { ExpectBitsOfOneHost({}); }

TEST_F(Hosts, WhoseLinksAreSlowAndLoseFramesTrainToTheSameBits) {
  ExpectBitsOfOneHost(
      {.delay = absl::Milliseconds(5), .jitter = absl::Milliseconds(2), .loss = 0.01});
}

TEST_F(Hosts, ThatAreCutOffForLongerThanALeaseComeBackAndEndEqual) {
  HostsCluster cluster({"--min-workers", "2", "--max-workers", "4", "--optimizer-replicas", "2",
                        "--lease", "2s", "--join-window", "1s"},
                       {"--steps", "200", "--evaluate-every", "10", "--drift-every", "0"});
  ASSERT_NO_FATAL_FAILURE(cluster.StartWorkers());
  ASSERT_NO_FATAL_FAILURE(cluster.AwaitTraining(kWorkers));
  LOCKSTEP_ASSERT_OK(cluster.network().Cut(kHostB));
  ASSERT_NO_FATAL_FAILURE(cluster.AwaitTraining(kWorkers / 2));
  LOCKSTEP_ASSERT_OK(cluster.network().Heal(kHostB));
  ASSERT_NO_FATAL_FAILURE(cluster.AwaitTraining(kWorkers));
  const EpochHistory history = cluster.ExpectRightEnd();
  ASSERT_FALSE(history.epochs().empty());
  EXPECT_EQ(history.epochs().begin()->second.world_size, kWorkers);
  EXPECT_EQ(history.epochs().rbegin()->second.world_size, kWorkers);
  EXPECT_TRUE(std::ranges::any_of(history.epochs(), [](const auto& epoch) {
    return epoch.second.world_size == kWorkers / 2;
  }));
  for (int i = 0; i < kWorkers; ++i) {
    EXPECT_THAT(cluster.WorkerLog(i), testing::Not(HasSubstr("go back to"))) << i;
  }
}

TEST_F(Hosts, TrainWithoutTheCoordinatorsAndStrangersAreTurnedAway) {
  // The delay gives steps a least length: training lasts until all of this is done.
  HostsCluster cluster({"--min-workers", "2", "--max-workers", "4", "--lease", "30s"},
                       {"--steps", "160", "--evaluate-every", "20", "--drift-every", "0"},
                       {.delay = absl::Milliseconds(2)});
  ASSERT_NO_FATAL_FAILURE(cluster.StartWorkers());
  ASSERT_NO_FATAL_FAILURE(cluster.AwaitTraining(kWorkers));
  LOCKSTEP_ASSERT_OK(cluster.network().Cut(kCoordinatorHost));
  ASSERT_NO_FATAL_FAILURE(AwaitEvaluations(cluster, 0, /*more=*/2));
  LOCKSTEP_ASSERT_OK(cluster.network().Heal(kCoordinatorHost));

  cluster.ExpectTurnedAway({{"plain", {}}, {"other", cluster.OtherAuthority()}});

  cluster.Ctl({"policy", "set", "mnist", "--every-forwards", "0", "--before-evaluation",
               "--reason", "the coordinator is back", "--wait"});
  const std::vector<nlohmann::json> reports = cluster.ExpectEqualEnds();
  ASSERT_FALSE(reports.empty());
  for (const nlohmann::json& report : reports) {
    EXPECT_EQ(report.at("epochs").size(), 1) << report.at("worker");
    ASSERT_EQ(report.at("switches").size(), 1) << report.at("worker");
    EXPECT_EQ(report.at("switches"), reports[0].at("switches"));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto traffic, cluster.network().Unplug());
  EXPECT_GT(traffic.at(kCoordinatorHost).lost, 0) << "it was not cut off";
}

}  // namespace
}  // namespace lockstep
