#include "worker/trainer/training_metrics.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "metrics/families.h"
#include "worker/engine/engine_options.h"

namespace lockstep {
namespace {

double Value(std::int64_t number) { return static_cast<double>(number); }

HistogramValue Value(const TimeHistogram& histogram) {
  return {kStepTimeBounds, histogram.counts, histogram.seconds};
}

}  // namespace

std::string TrainingMetricsText(const std::string& job, const std::string& worker,
                                const std::optional<TrainingStatus>& status,
                                const StepTimes::Totals& times) {
  MetricFamily in_epoch = Gauge("training_in_epoch", "1 if the worker is in an epoch, else 0.");
  MetricFamily epoch = Gauge("training_epoch", "The epoch's number.");
  MetricFamily rank = Gauge("training_rank", "The worker's rank in it.");
  MetricFamily world_size = Gauge("training_world_size", "Its ranks.");
  MetricFamily step = Gauge("training_step", "Steps of the job that are committed.");
  MetricFamily revision = Gauge("training_policy_revision", "Of the sync policy in force.");
  MetricFamily optimizer_bytes =
      Gauge("training_optimizer_bytes", "Of the worker's optimizer state.");
  MetricFamily reported = Gauge("training_reported", "What training code reports, by name.");
  MetricFamily recoveries =
      Counter("training_recoveries_total", "Epochs that the worker joined after its first.");
  MetricFamily syncs = Counter("syncs_total", "Syncs of buffers in the epoch.");
  MetricFamily transfers = Counter("sync_transfers_total", "Transfers of these syncs.");
  MetricFamily bytes = Counter("sync_bytes_total", "Bytes of buffers that were synchronised.");
  MetricFamily skipped =
      Counter("sync_skipped_bytes_total", "Bytes that were left out as unchanged.");
  MetricFamily seconds = Counter("sync_seconds_total",
                                 "Time that the worker spent in syncs, waiting included.");
  MetricFamily step_seconds =
      Histogram("training_step_seconds", "Time of a step, from the forward pass to its end.");
  MetricFamily phase_seconds =
      Histogram("training_phase_seconds", "Of a step: time from that moment to the next one.");

  const MetricLabels name = {{"job", job}, {"worker", worker}};
  in_epoch.Set(name, status.has_value() ? 1 : 0);
  if (status.has_value()) {
    epoch.Set(name, Value(status->epoch));
    rank.Set(name, status->rank);
    world_size.Set(name, status->world_size);
    step.Set(name, Value(status->step));
    revision.Set(name, Value(status->revision));
    optimizer_bytes.Set(name, Value(status->optimizer_bytes));
    recoveries.Set(name, Value(status->recoveries));
    syncs.Set(name, Value(status->sync.syncs));
    transfers.Set(name, Value(status->sync.transfers));
    bytes.Set(name, Value(status->sync.bytes));
    skipped.Set(name, Value(status->sync.skipped_bytes));
    seconds.Set(name, absl::ToDoubleSeconds(status->sync_time));
    for (const auto& [metric, value] : status->reported) {
      reported.Set({name[0], name[1], {"name", metric}}, value);
    }
  }
  step_seconds.Set(name, Value(times.steps));
  for (std::size_t i = 0; i < kStepPhases; ++i) {
    const std::string phase(StepPhaseName(static_cast<StepPhase>(i)));
    phase_seconds.Set({name[0], name[1], {"phase", phase}}, Value(times.phases[i]));
  }
  std::vector<MetricFamily> all;
  for (MetricFamily* family :
       {&in_epoch, &epoch, &rank, &world_size, &step, &revision, &optimizer_bytes, &reported,
        &recoveries, &syncs, &transfers, &bytes, &skipped, &seconds, &step_seconds,
        &phase_seconds}) {
    all.push_back(std::move(*family));
  }
  return TextOf(std::move(all));
}

}  // namespace lockstep
