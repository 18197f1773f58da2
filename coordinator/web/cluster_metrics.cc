#include "coordinator/web/cluster_metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

class Family {
 public:
  Family(std::string name, prometheus::MetricType type, std::string help) {
    family_.name = "lockstep_" + std::move(name);
    family_.type = type;
    family_.help = std::move(help);
  }
  void Set(Labels labels, double value) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    metric.counter.value = value;
    family_.metric.push_back(std::move(metric));
  }
  prometheus::MetricFamily& family() { return family_; }

 private:
  prometheus::MetricFamily family_;
};

Family Gauge(std::string name, std::string help) {
  return Family(std::move(name), prometheus::MetricType::Gauge, std::move(help));
}
Family Counter(std::string name, std::string help) {
  return Family(std::move(name), prometheus::MetricType::Counter, std::move(help));
}

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
  Family state = Gauge("job_state", "1 for the state that the job is in, 0 for the others.");
  Family workers = Gauge("job_workers", "Workers of the job, by state.");
  Family min_workers = Gauge("job_min_workers", "Workers that an epoch of the job takes.");
  Family epoch = Gauge("job_epoch", "The newest epoch's number.");
  Family step = Gauge("job_step", "The highest step that a worker reported as taken.");
  Family revision = Gauge("job_policy_revision", "The newest revision of the sync policy.");
  Family log_number = Gauge("job_log_number", "The last entry of the control log.");
  Family lag = Gauge("job_log_lag", "Entries of the control log that are not yet in force.");
  Family violation = Gauge("job_violation", "1 if a guarantee was seen broken, else 0.");
  Family epochs_started = Counter("job_epochs_started_total", "Epochs that began to train.");
  Family epochs_ended = Counter(
      "job_epochs_ended_total",
      "Epochs that ended: 'failed' as a member was lost or not ready, 'regrouped' as agreed.");
  Family entries = Counter("job_log_entries_total", "Decisions that were logged.");

  void Add(const JobState& job) {
    const Labels name = {{"job", job.spec.name}};
    for (const JobStageName& each : kJobStages) {
      state.Set({name[0], {"state", each.name}}, job.stage == each.stage ? 1 : 0);
    }
    for (const WorkerStageName& each : kWorkerStages) {
      int count = 0;
      for (const auto& [_, worker] : job.workers) count += worker.stage == each.stage ? 1 : 0;
      workers.Set({name[0], {"state", each.name}}, count);
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
    const Labels name = {{"job", job}};
    epochs_started.Set(name, Value(events.epochs_started));
    epochs_ended.Set({name[0], {"how", "failed"}}, Value(events.epochs_failed));
    epochs_ended.Set({name[0], {"how", "regrouped"}}, Value(events.epochs_regrouped));
    entries.Set(name, Value(events.entries));
  }
  void MoveTo(std::vector<prometheus::MetricFamily>& all) {
    for (Family* family : {&state, &workers, &min_workers, &epoch, &step, &revision, &log_number,
                           &lag, &violation, &epochs_started, &epochs_ended, &entries}) {
      all.push_back(std::move(family->family()));
    }
  }
};

struct WorkerFamilies {
  Family rank = Gauge("worker_rank", "The worker's rank in the epoch; -1: it has none.");
  Family step = Gauge("worker_step", "The step that the worker reported as taken.");
  Family step_age = Gauge("worker_step_age_seconds", "Since that step changed.");
  Family heard_age = Gauge("worker_heard_age_seconds", "Since the worker was heard.");
  Family optimizer_bytes = Gauge("worker_optimizer_bytes", "Of the worker's optimizer state.");
  Family syncs = Counter("worker_syncs_total", "Syncs of buffers in the worker's epoch.");
  Family transfers = Counter("worker_sync_transfers_total", "Transfers of these syncs.");
  Family bytes = Counter("worker_sync_bytes_total", "Bytes of buffers that were synchronised.");
  Family skipped =
      Counter("worker_sync_skipped_bytes_total", "Bytes that were left out as unchanged.");
  Family reported = Gauge("worker_reported", "What training code reports, by name.");

  void Add(const JobState& job, const WorkerState& worker, MonoTime now) {
    const Labels name = {{"job", job.spec.name}, {"worker", worker.name}};
    const auto age = [&](MonoTime since) {
      return absl::ToDoubleSeconds(std::max(now - since, absl::ZeroDuration()));
    };
    rank.Set(name, job.RankOf(worker.name));
    step.Set(name, Value(worker.step));
    step_age.Set(name, age(worker.step_since));
    heard_age.Set(name, age(worker.last_heard));
    optimizer_bytes.Set(name, Value(worker.optimizer_bytes));
    syncs.Set(name, Value(worker.sync.syncs));
    transfers.Set(name, Value(worker.sync.transfers));
    bytes.Set(name, Value(worker.sync.bytes));
    skipped.Set(name, Value(worker.sync.skipped_bytes));
    for (const auto& [metric, value] : worker.metrics) {
      reported.Set({name[0], name[1], {"name", metric}}, value);
    }
  }
  void MoveTo(std::vector<prometheus::MetricFamily>& all) {
    for (Family* family : {&rank, &step, &step_age, &heard_age, &optimizer_bytes, &syncs,
                           &transfers, &bytes, &skipped, &reported}) {
      all.push_back(std::move(family->family()));
    }
  }
};

prometheus::MetricFamily AppendSeconds(const StoreMeter& meter) {
  Family family("store_append_seconds", prometheus::MetricType::Histogram,
                "Time to make decisions durable.");
  prometheus::ClientMetric metric;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < meter.appends.size(); ++i) {
    count += static_cast<std::uint64_t>(meter.appends[i]);
    const double bound = i < kAppendBounds.size() ? kAppendBounds[i]
                                                  : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({count, bound});
  }
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = meter.append_seconds;
  family.family().metric.push_back(std::move(metric));
  return std::move(family.family());
}

}  // namespace

std::string MetricsText(const ClusterState& state, const StoreMeter& meter, MonoTime now) {
  JobFamilies jobs;
  WorkerFamilies workers;
  for (const auto& [name, job] : state.jobs) {
    jobs.Add(job);
    for (const auto& [_, worker] : job.workers) workers.Add(job, worker, now);
    const auto events = meter.jobs.find(name);
    jobs.Add(name, events == meter.jobs.end() ? JobEvents() : events->second);
  }
  Family generation = Gauge("coordinator_generation", "How often the coordinator was started.");
  generation.Set({}, Value(state.generation.value()));

  std::vector<prometheus::MetricFamily> all;
  all.push_back(std::move(generation.family()));
  jobs.MoveTo(all);
  workers.MoveTo(all);
  all.push_back(AppendSeconds(meter));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

}  // namespace lockstep
