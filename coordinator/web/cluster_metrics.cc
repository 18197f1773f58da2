#include "coordinator/web/cluster_metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "metrics/families.h"

namespace lockstep {
namespace {

struct JobStageName {
  JobStage stage;
  const char* name;
};
constexpr JobStageName kJobStages[] = {{JobStage::kWaiting, "waiting"},
                                       {JobStage::kForming, "forming"},
                                       {JobStage::kRunning, "running"}};
struct WorkerStageName {
  WorkerStage stage;
  const char* name;
};
constexpr WorkerStageName kWorkerStages[] = {
    {WorkerStage::kAttending, "attending"}, {WorkerStage::kPreparing, "preparing"},
    {WorkerStage::kReady, "ready"},         {WorkerStage::kTraining, "training"},
    {WorkerStage::kSuspect, "suspect"},     {WorkerStage::kLeft, "left"}};

double Value(std::int64_t number) { return static_cast<double>(number); }

// Of jobs.
struct JobFamilies {
  MetricFamily state = Gauge("job_state", "1 for the state that the job is in, 0 for the others.");
  MetricFamily workers = Gauge("job_workers", "Workers of the job, by state.");
  MetricFamily min_workers = Gauge("job_min_workers", "Workers that an epoch of the job takes.");
  MetricFamily epoch = Gauge("job_epoch", "The newest epoch's number.");
  MetricFamily step = Gauge("job_step", "The highest step that a worker reported as taken.");
  MetricFamily revision = Gauge("job_policy_revision", "The newest revision of the sync policy.");
  MetricFamily log_number = Gauge("job_log_number", "The last entry of the control log.");
  MetricFamily lag = Gauge("job_log_lag", "Entries of the control log that are not yet in force.");
  MetricFamily violation = Gauge("job_violation", "1 if a guarantee was seen broken, else 0.");
  MetricFamily epochs_started = Counter("job_epochs_started_total", "Epochs that began to train.");
  MetricFamily epochs_ended = Counter(
      "job_epochs_ended_total",
      "Epochs that ended: 'finished' as all members did, 'failed' as one was lost or not ready, "
      "'regrouped' as agreed.");
  MetricFamily entries = Counter("job_log_entries_total", "Decisions that were logged.");

  void Add(const JobState& job) {
    const MetricLabels name = {{"job", job.spec.name}};
    for (const JobStageName& each : kJobStages) {
      state.Set({name[0], {"state", each.name}}, job.stage == each.stage ? 1 : 0);
    }
    std::map<WorkerStage, int> counts;
    for (const auto& [_, worker] : job.workers) ++counts[worker.stage];
    for (const WorkerStageName& each : kWorkerStages) {
      workers.Set({name[0], {"state", each.name}}, counts[each.stage]);
    }
    min_workers.Set(name, job.spec.min_workers);
    epoch.Set(name, Value(job.last_epoch.value()));
    step.Set(name, Value(job.step()));
    revision.Set(name, Value(job.newest_policy().revision.value()));
    log_number.Set(name, Value(job.last_number().value()));
    std::int64_t behind = 0;
    for (LogNumber number = job.last_number();
         number.valid() && !IsEffective(job, number); number = LogNumber(number.value() - 1)) {
      ++behind;
    }
    lag.Set(name, Value(behind));
    violation.Set(name, job.violation.empty() ? 0 : 1);
  }
  void Add(const std::string& job, const JobEvents& events) {
    const MetricLabels name = {{"job", job}};
    epochs_started.Set(name, Value(events.epochs_started));
    epochs_ended.Set({name[0], {"how", "finished"}}, Value(events.epochs_finished));
    epochs_ended.Set({name[0], {"how", "failed"}}, Value(events.epochs_failed));
    epochs_ended.Set({name[0], {"how", "regrouped"}}, Value(events.epochs_regrouped));
    entries.Set(name, Value(events.entries));
  }
  std::vector<MetricFamily*> all() {
    return {&state,      &workers, &min_workers, &epoch,          &step,         &revision,
            &log_number, &lag,     &violation,   &epochs_started, &epochs_ended, &entries};
  }
};

struct WorkerFamilies {
  MetricFamily rank = Gauge("worker_rank", "The worker's rank in the epoch; -1: it has none.");
  MetricFamily step = Gauge("worker_step", "The step that the worker reported as taken.");
  MetricFamily step_age = Gauge("worker_step_age_seconds", "Since that step changed.");
  MetricFamily heard_age = Gauge("worker_heard_age_seconds", "Since the worker was heard.");
  MetricFamily optimizer_bytes = Gauge("worker_optimizer_bytes", "Of the worker's optimizer state.");
  MetricFamily syncs = Counter("worker_syncs_total", "Syncs of buffers in the worker's epoch.");
  MetricFamily transfers = Counter("worker_sync_transfers_total", "Transfers of these syncs.");
  MetricFamily bytes = Counter("worker_sync_bytes_total", "Bytes of buffers that were synchronised.");
  MetricFamily skipped =
      Counter("worker_sync_skipped_bytes_total", "Bytes that were left out as unchanged.");
  MetricFamily reported = Gauge("worker_reported", "What training code reports, by name.");

  void Add(const JobState& job, const WorkerState& worker, MonoTime now) {
    const MetricLabels name = {{"job", job.spec.name}, {"worker", worker.name}};
    const auto age = [&](MonoTime since) {
      return absl::ToDoubleSeconds(std::max(now - since, absl::ZeroDuration()));
    };
    rank.Set(name, job.RankOf(worker.name));
    step.Set(name, Value(worker.step));
    if (worker.stage != WorkerStage::kLeft) {  // else nobody waits for it
      step_age.Set(name, age(worker.step_since));
      heard_age.Set(name, age(worker.last_heard));
    }
    optimizer_bytes.Set(name, Value(worker.optimizer_bytes));
    syncs.Set(name, Value(worker.sync.syncs));
    transfers.Set(name, Value(worker.sync.transfers));
    bytes.Set(name, Value(worker.sync.bytes));
    skipped.Set(name, Value(worker.sync.skipped_bytes));
    for (const auto& [metric, value] : worker.metrics) {
      reported.Set({name[0], name[1], {"name", metric}}, value);
    }
  }
  std::vector<MetricFamily*> all() {
    return {&rank,  &step,      &step_age, &heard_age, &optimizer_bytes,
            &syncs, &transfers, &bytes,    &skipped,   &reported};
  }
};

}  // namespace

std::vector<MetricFamily> ClusterMetrics(const ClusterState& state, const StoreMeter& meter,
                                         MonoTime now) {
  JobFamilies jobs;
  WorkerFamilies workers;
  for (const auto& [name, job] : state.jobs) {
    jobs.Add(job);
    for (const auto& [_, worker] : job.workers) workers.Add(job, worker, now);
    const auto events = meter.jobs.find(name);
    jobs.Add(name, events == meter.jobs.end() ? JobEvents() : events->second);
  }
  MetricFamily generation = Gauge("coordinator_generation", "How often the coordinator was started.");
  generation.Set({}, Value(state.generation.value()));

  MetricFamily appends =
      Histogram("store_append_seconds", "Time to make decisions durable.");
  appends.Set({}, {kAppendBounds, meter.appends, meter.append_seconds});

  std::vector<MetricFamily> all;
  for (const auto& some : {std::vector{&generation, &appends}, jobs.all(), workers.all()}) {
    for (MetricFamily* family : some) all.push_back(std::move(*family));
  }
  return all;
}

}  // namespace lockstep
