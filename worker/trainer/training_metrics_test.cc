#include "worker/trainer/training_metrics.h"

#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/routes.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

const TrainingStatus kStatus = {.epoch = 4,
                                .rank = 1,
                                .world_size = 2,
                                .step = 70,
                                .revision = 3,
                                .recoveries = 2,
                                .sync = {.syncs = 7, .transfers = 9, .bytes = 800,
                                         .skipped_bytes = 50},
                                .sync_time = absl::Milliseconds(1500),
                                .optimizer_bytes = 4096,
                                .reported = {{"loss", 0.5}}};

TEST(TrainingMetricsText, TellsWhereTrainingIs) {
  const std::string text = TrainingMetricsText("mnist", "w1", kStatus, {});
  for (const char* line : {
           "lockstep_training_in_epoch{job=\"mnist\",worker=\"w1\"} 1",
           "lockstep_training_epoch{job=\"mnist\",worker=\"w1\"} 4",
           "lockstep_training_rank{job=\"mnist\",worker=\"w1\"} 1",
           "lockstep_training_world_size{job=\"mnist\",worker=\"w1\"} 2",
           "lockstep_training_step{job=\"mnist\",worker=\"w1\"} 70",
           "lockstep_training_policy_revision{job=\"mnist\",worker=\"w1\"} 3",
           "lockstep_training_optimizer_bytes{job=\"mnist\",worker=\"w1\"} 4096",
           "lockstep_training_recoveries_total{job=\"mnist\",worker=\"w1\"} 2",
           "lockstep_training_reported{job=\"mnist\",worker=\"w1\",name=\"loss\"} 0.5",
           "lockstep_syncs_total{job=\"mnist\",worker=\"w1\"} 7",
           "lockstep_sync_transfers_total{job=\"mnist\",worker=\"w1\"} 9",
           "lockstep_sync_bytes_total{job=\"mnist\",worker=\"w1\"} 800",
           "lockstep_sync_skipped_bytes_total{job=\"mnist\",worker=\"w1\"} 50",
           "lockstep_sync_seconds_total{job=\"mnist\",worker=\"w1\"} 1.5",
       }) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

TEST(TrainingMetricsText, TellsTimesAsHistograms) {
  StepTimes times;
  times.Reach(StepPhase::kForward, MonoTime());
  times.Reach(StepPhase::kCollected, MonoTime() + absl::Milliseconds(250));
  times.EndStep(MonoTime() + absl::Milliseconds(1000));
  const std::string text = TrainingMetricsText("j", "w", kStatus, times.totals());
  for (const char* line : {
           "lockstep_training_step_seconds_bucket{job=\"j\",worker=\"w\",le=\"0.5\"} 0",
           "lockstep_training_step_seconds_bucket{job=\"j\",worker=\"w\",le=\"1\"} 1",
           "lockstep_training_step_seconds_bucket{job=\"j\",worker=\"w\",le=\"+Inf\"} 1",
           "lockstep_training_step_seconds_count{job=\"j\",worker=\"w\"} 1",
           "lockstep_training_step_seconds_sum{job=\"j\",worker=\"w\"} 1",
           "lockstep_training_phase_seconds_sum{job=\"j\",worker=\"w\",phase=\"forward\"} 0.25",
           "lockstep_training_phase_seconds_sum{job=\"j\",worker=\"w\",phase=\"collected\"} 0.75",
           "lockstep_training_phase_seconds_count{job=\"j\",worker=\"w\",phase=\"agreed\"} 0",
       }) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

TEST(TrainingMetricsText, OutsideOfAnEpochTellsNoPlaceInOne) {
  const std::string text = TrainingMetricsText("j", "w", std::nullopt, {});
  EXPECT_THAT(text, HasSubstr("lockstep_training_in_epoch{job=\"j\",worker=\"w\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("lockstep_training_step{")));
}

TEST(WorkerRoutes, AWorkerIsReadyWhileItIsInAnEpoch) {
  TrainingMonitor monitor;
  const std::vector<HttpRoute> routes = WorkerRoutes("j", "w", &monitor);
  const auto status_of = [&](const std::string& path) {
    return Respond(routes, {.method = "GET", .path = path}, Caller(), /*is_open=*/true).status;
  };
  EXPECT_EQ(status_of("/livez"), 200);
  EXPECT_EQ(status_of("/readyz"), 503);
  EXPECT_EQ(status_of("/metrics"), 200);
  monitor.Set(kStatus);
  EXPECT_EQ(status_of("/readyz"), 200);
  monitor.Set(std::nullopt);
  EXPECT_EQ(status_of("/readyz"), 503);
}

TEST(WorkerRoutes, MetricsAreNotForStrangers) {
  TrainingMonitor monitor;
  const std::vector<HttpRoute> routes = WorkerRoutes("j", "w", &monitor);
  const auto status_of = [&](const std::string& path) {
    return Respond(routes, {.method = "GET", .path = path},
                   absl::UnauthenticatedError("no certificate"), /*is_open=*/false)
        .status;
  };
  EXPECT_EQ(status_of("/metrics"), 401);
  EXPECT_EQ(status_of("/livez"), 200);
}

}  // namespace
}  // namespace lockstep
