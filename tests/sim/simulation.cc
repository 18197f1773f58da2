#include "tests/sim/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"
#include "tests/sim/faults.h"

namespace lockstep::sim {
namespace {

// How long the job may take to get on once all is healed: joins, leases and the deadlines of
// operations that nobody answers are over by then.
constexpr absl::Duration kPatience = absl::Seconds(120);
// Far more than happen at once: a process that never waits.
constexpr int kMostEventsAtOnce = 20'000;
constexpr std::int64_t kStepsAfterHealing = 5;

ClusterOptions ClusterOf(const RunOptions& options, Scheduler& scheduler) {
  Prng& prng = scheduler.prng();
  ClusterOptions cluster;
  cluster.without = options.without;
  cluster.workers = static_cast<int>(prng.Between(3, 5));
  cluster.job = {.name = "job",
                 .min_workers = static_cast<int>(prng.Between(1, cluster.workers)),
                 .max_workers = cluster.workers,
                 .join_window = absl::Seconds(5),
                 .lease = absl::Seconds(10),
                 .ready_timeout = absl::Seconds(10),
                 .optimizer_replicas = scheduler.OneIn(4) ? 1 : 2};
  if (prng.Below(2) == 0) cluster.job.policy.schedule.every_forwards = prng.Between(0, 3);
  cluster.fabric = {.shares_parameters = scheduler.OneIn(3),
                    .tells_peers = !scheduler.OneIn(3),
                    .fences = options.without != Without::kFencing};
  cluster.training.seed = prng.Next();
  if (prng.Below(2) == 0) {
    cluster.training.optimizer = AdamW{.lr = 0.05};
  } else {
    cluster.training.optimizer = Sgd{.lr = 0.1, .momentum = 0.9};
  }
  cluster.training.max_grad_norm = scheduler.OneIn(3) ? 0.5 : 0;
  cluster.most_drift_permille = scheduler.OneIn(2) ? 50 : 0;
  cluster.compute = scheduler.Random(absl::Milliseconds(5), absl::Milliseconds(300));
  return cluster;
}

}  // namespace

std::optional<Without> WithoutOf(absl::string_view name) {
  if (name == "commit-point") return Without::kCommitPoint;
  if (name == "buddy") return Without::kBuddy;
  if (name == "fencing") return Without::kFencing;
  if (name == "agreement") return Without::kAgreement;
  return std::nullopt;
}

RunResult RunSimulation(const RunOptions& options) {
  Scheduler scheduler(options.seed);
  Trace trace(&scheduler, options.live_trace);
  const ClusterOptions settings = ClusterOf(options, scheduler);
  Cluster cluster(&scheduler, &trace, settings);
  Faults faults(&scheduler, &trace, &cluster);
  RunResult result = {.cluster = absl::StrCat(settings.ToString(), "; ", faults.ToString())};
  trace.Say("seed ", options.seed, ": ", result.cluster);

  cluster.StartCoordinator();
  cluster.CreateJob();
  for (int worker = 0; worker < cluster.workers(); ++worker) {
    scheduler.After(scheduler.Random(absl::Milliseconds(50), absl::Milliseconds(400)), nullptr,
                    [&cluster, worker] { cluster.StartWorker(worker); });
  }
  faults.Begin();

  std::optional<MonoTime> healed_at;
  std::int64_t step_then = 0;
  int histories_then = 0;
  MonoTime last;
  int at_once = 0;
  while (cluster.checker().violation().empty() && scheduler.Once()) {
    at_once = scheduler.now() == last ? at_once + 1 : 0;
    last = scheduler.now();
    if (at_once > kMostEventsAtOnce) {
      result.violation = "progress: time stands still, as somebody never waits";
      break;
    }
    if (!faults.healed()) continue;
    const Checker& checker = cluster.checker();
    if (!healed_at.has_value() || histories_then != checker.histories()) {
      if (!healed_at.has_value()) healed_at = scheduler.now();
      step_then = checker.last_step();
      histories_then = checker.histories();
    }
    if (checker.last_step() >= step_then + kStepsAfterHealing && cluster.IsWhole()) break;
    if (scheduler.now() > *healed_at + kPatience) {
      result.violation = absl::StrCat("progress: all was healed at ",
                                      absl::FormatDuration(*healed_at - MonoTime()),
                                      "; since then steps ", step_then, " to ",
                                      checker.last_step(), " were taken");
      break;
    }
  }
  if (!cluster.checker().violation().empty()) result.violation = cluster.checker().violation();
  if (!result.violation.empty()) trace.Say("the run ends: ", result.violation);
  result.steps = cluster.checker().last_step();
  result.epochs = cluster.checker().epochs_begun();
  result.restores = std::max<std::int64_t>(0, cluster.checker().histories() - 1);
  result.faults = faults.done();
  result.virtual_seconds = absl::ToDoubleSeconds(scheduler.now() - MonoTime());
  result.digest = trace.digest();
  result.trace = trace.lines();
  return result;
}

}  // namespace lockstep::sim
