#include "coordinator/web/cluster_metrics.h"

#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

MonoTime At(int seconds) { return MonoTime() + absl::Seconds(seconds); }

class MetricsTextTest : public testing::Test {
 protected:
  MetricsTextTest() {
    state_.generation = Generation(3);
    JobState& job = state_.jobs["mnist"];
    job.spec.name = "mnist";
    job.spec.min_workers = 2;
    job.stage = JobStage::kRunning;
    job.last_epoch = Epoch(5);
    job.policies.push_back({.revision = Revision(1)});
    for (const char* name : {"w0", "w1"}) {
      WorkerState& worker = job.workers[name];
      worker.name = name;
      worker.stage = WorkerStage::kTraining;
      worker.step = 70;
      worker.step_since = At(8);
      worker.last_heard = At(9);
      worker.sync.bytes = 1000;
      worker.metrics["loss \"x\""] = 0.5;
    }
    job.workers["w1"].stage = WorkerStage::kSuspect;
    job.last_step = 70;
  }
  std::string Text() const { return TextOf(ClusterMetrics(state_, meter_, At(10))); }

  ClusterState state_;
  StoreMeter meter_;
};

TEST_F(MetricsTextTest, TellsJobsAndWorkers) {
  const std::string text = Text();
  for (const char* line : {
           "lockstep_coordinator_generation 3",
           "lockstep_job_state{job=\"mnist\",state=\"running\"} 1",
           "lockstep_job_state{job=\"mnist\",state=\"waiting\"} 0",
           "lockstep_job_workers{job=\"mnist\",state=\"training\"} 1",
           "lockstep_job_workers{job=\"mnist\",state=\"suspect\"} 1",
           "lockstep_job_min_workers{job=\"mnist\"} 2",
           "lockstep_job_epoch{job=\"mnist\"} 5",
           "lockstep_job_policy_revision{job=\"mnist\"} 1",
           "lockstep_worker_step{job=\"mnist\",worker=\"w0\"} 70",
           "lockstep_worker_step_age_seconds{job=\"mnist\",worker=\"w0\"} 2",
           "lockstep_worker_heard_age_seconds{job=\"mnist\",worker=\"w0\"} 1",
           "lockstep_worker_sync_bytes_total{job=\"mnist\",worker=\"w0\"} 1000",
           "lockstep_worker_reported{job=\"mnist\",worker=\"w0\",name=\"loss \\\"x\\\"\"} 0.5",
       }) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
  EXPECT_THAT(text, HasSubstr("# TYPE lockstep_job_epochs_started_total counter"));
}

TEST_F(MetricsTextTest, NobodyWaitsForAWorkerThatLeft) {
  state_.jobs["mnist"].workers["w1"].stage = WorkerStage::kLeft;
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("lockstep_worker_heard_age_seconds{job=\"mnist\",worker=\"w0\"}"));
  EXPECT_THAT(text, Not(HasSubstr("age_seconds{job=\"mnist\",worker=\"w1\"}")));
  EXPECT_THAT(text, HasSubstr("lockstep_worker_step{job=\"mnist\",worker=\"w1\"} 70\n"));
}

TEST_F(MetricsTextTest, TellsHowManyEntriesAreNotInForce) {
  JobState& job = state_.jobs["mnist"];
  EXPECT_THAT(Text(), HasSubstr("lockstep_job_log_lag{job=\"mnist\"} 0\n"));
  job.log.resize(3);
  job.in_force = LogNumber(1);
  EXPECT_THAT(Text(), HasSubstr("lockstep_job_log_lag{job=\"mnist\"} 2\n"));
  EXPECT_THAT(Text(), HasSubstr("lockstep_job_log_number{job=\"mnist\"} 3\n"));
}

TEST_F(MetricsTextTest, TellsWhatHappened) {
  meter_.jobs["mnist"] = {.epochs_started = 4,
                           .epochs_finished = 3,
                           .epochs_failed = 2,
                           .epochs_regrouped = 1};
  meter_.appends[0] = 10;
  meter_.appends.back() = 1;
  meter_.append_seconds = 3.5;
  const std::string text = Text();
  for (const char* line : {
           "lockstep_job_epochs_started_total{job=\"mnist\"} 4",
           "lockstep_job_epochs_ended_total{job=\"mnist\",how=\"finished\"} 3",
           "lockstep_job_epochs_ended_total{job=\"mnist\",how=\"failed\"} 2",
           "lockstep_job_epochs_ended_total{job=\"mnist\",how=\"regrouped\"} 1",
           "lockstep_store_append_seconds_bucket{le=\"0.0005\"} 10",
           "lockstep_store_append_seconds_bucket{le=\"2.5\"} 10",
           "lockstep_store_append_seconds_bucket{le=\"+Inf\"} 11",
           "lockstep_store_append_seconds_count 11",
           "lockstep_store_append_seconds_sum 3.5",
       }) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

TEST_F(MetricsTextTest, ForgetsJobsThatAreGone) {
  meter_.jobs["gone"] = {.epochs_started = 1};
  EXPECT_THAT(Text(), Not(HasSubstr("gone")));
}

}  // namespace
}  // namespace lockstep
