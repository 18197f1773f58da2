#include "tests/sim/faults.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::sim {

const char* Faults::NameOf(Kind kind) {
  switch (kind) {
    case Kind::kCrashWorker: return "crashes";
    case Kind::kCrashAtPhase: return "crashes at phases";
    case Kind::kCrashCoordinator: return "coordinator crashes";
    case Kind::kBreakStream: return "streams break";
    case Kind::kStopWorker: return "stops";
    case Kind::kStopAtPhase: return "stops at phases";
    case Kind::kStopCoordinator: return "coordinator stops";
    case Kind::kBlockControl: return "control blocks";
    case Kind::kBlockData: return "data blocks";
    case Kind::kSlowWorker: return "slow workers";
    case Kind::kRevisePolicy: return "revisions";
    case Kind::kSyncNow: return "syncs";
    case Kind::kDismiss: return "workers leave";
    case Kind::kDrain: return "drains";
  }
  return "";
}

Faults::Faults(Scheduler* scheduler, Trace* trace, Cluster* cluster)
    : scheduler_(*scheduler), trace_(*trace), cluster_(*cluster) {
  for (int kind = 0; kind <= static_cast<int>(Kind::kDrain); ++kind) {
    if (scheduler_.OneIn(3)) kinds_.push_back(static_cast<Kind>(kind));
  }
  careful_ = !scheduler_.OneIn(3);
  const absl::Duration duration =
      absl::Seconds(1) + cluster->options().compute * scheduler_.prng().Between(20, 200);
  end_ = scheduler_.now() + duration;
  longest_gap_ = duration / scheduler_.prng().Between(3, 30);
}

std::string Faults::ToString() const {
  std::vector<std::string> names;
  for (const Kind kind : kinds_) names.push_back(NameOf(kind));
  return absl::StrCat(names.empty() ? "nothing fails" : absl::StrJoin(names, ", "),
                      careful_ ? "; one at a time" : "");
}

void Faults::Begin() {
  scheduler_.At(end_, nullptr, [this] { Heal(); });
  scheduler_.After(absl::Milliseconds(500), nullptr, [this] { Next(); });
}

void Faults::Next() {
  if (healed_ || kinds_.empty()) return;
  Do(kinds_[scheduler_.prng().Below(kinds_.size())]);
  scheduler_.After(scheduler_.Random(absl::Milliseconds(1), longest_gap_), nullptr,
                   [this] { Next(); });
}

int Faults::AnyWorker() {
  return static_cast<int>(scheduler_.prng().Below(static_cast<std::uint64_t>(cluster_.workers())));
}

absl::Duration Faults::Pause() {
  return scheduler_.OneIn(3) ? scheduler_.Random(absl::Seconds(1), absl::Seconds(15))
                             : scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(500));
}

bool Faults::MayLose(int worker) const { return !careful_ || cluster_.OthersHold(worker); }

void Faults::Do(Kind kind) {
  const int worker = AnyWorker();
  const absl::Duration pause = Pause();
  const auto phase = static_cast<StepPhase>(
      scheduler_.prng().Below(static_cast<std::uint64_t>(StepPhase::kApplying) + 1));
  ++done_;
  switch (kind) {
    case Kind::kCrashWorker:
      if (MayLose(worker)) cluster_.CrashWorker(worker, pause);
      return;
    case Kind::kCrashAtPhase:
      if (MayLose(worker)) cluster_.Plan(worker, phase, Cluster::Fate::kCrash, pause);
      return;
    case Kind::kStopAtPhase:
      if (MayLose(worker)) cluster_.Plan(worker, phase, Cluster::Fate::kStop, pause);
      return;
    case Kind::kStopWorker:
      if (pause > absl::Seconds(1) && !MayLose(worker)) return;
      cluster_.StopWorker(worker);
      scheduler_.After(pause, nullptr, [this, worker] { cluster_.ContinueWorker(worker); });
      return;
    case Kind::kDismiss:
      if (MayLose(worker)) cluster_.DismissWorker(worker, pause);
      return;
    case Kind::kCrashCoordinator:
      if (!cluster_.coordinator().is_up()) return;
      cluster_.coordinator().Crash();
      scheduler_.After(pause, nullptr, [this] { cluster_.StartCoordinator(); });
      return;
    case Kind::kStopCoordinator:
      if (!cluster_.coordinator().is_up()) return;
      cluster_.coordinator().Stop();
      scheduler_.After(pause, nullptr, [this] { cluster_.coordinator().Continue(); });
      return;
    case Kind::kBreakStream:
      cluster_.BreakStream(worker);
      return;
    case Kind::kBlockControl:
      if (pause > absl::Seconds(1) && !MayLose(worker)) return;
      cluster_.BlockControl(worker, scheduler_.OneIn(2) ? ControlNet::kUp : ControlNet::kDown,
                            pause);
      return;
    case Kind::kBlockData: {
      const int to = AnyWorker();
      if (to != worker) cluster_.BlockData(worker, to, pause);
      return;
    }
    case Kind::kSlowWorker:
      cluster_.SlowDown(worker, scheduler_.OneIn(2) ? absl::Microseconds(200)
                                                    : absl::Milliseconds(20));
      return;
    case Kind::kDrain:
      if (cluster_.coordinator().is_up() && MayLose(worker)) cluster_.Drain(worker);
      return;
    case Kind::kRevisePolicy:
      return RevisePolicy();
    case Kind::kSyncNow:
      if (!cluster_.coordinator().is_up()) return;
      cluster_.coordinator().Submit(
          SyncNow{.job = "job",
                  .what = {.buffers = true, .parameters = scheduler_.OneIn(2)}},
          [this](const absl::StatusOr<Reply>& reply) {
            if (reply.ok()) cluster_.checker().OnEntry(std::get<LogNumber>(*reply));
          });
      return;
  }
}

void Faults::RevisePolicy() {
  if (!cluster_.coordinator().is_up()) return;
  SyncPolicy policy;
  policy.broadcast_buffers = !scheduler_.OneIn(4);
  policy.schedule.every_forwards = scheduler_.prng().Between(0, 3);
  policy.schedule.every_steps = scheduler_.prng().Between(0, 3);
  if (scheduler_.OneIn(3)) policy.ignore_list.push_back("local.*");
  if (scheduler_.OneIn(4)) policy.ignore_list.push_back("no.such.buffer");  // refused
  if (scheduler_.OneIn(3)) {
    policy.rules.push_back({.pattern = "bn.running_mean", .operation = Operation::kMean});
  }
  if (scheduler_.OneIn(6)) policy.operation = Operation::kMean;  // refused: of an integer
  policy.skip_unchanged = scheduler_.OneIn(3);
  if (scheduler_.OneIn(3)) policy.root = RootRank{scheduler_.prng().Between(0, 4)};
  policy.check_parameters_every_steps = scheduler_.prng().Between(0, 2);
  cluster_.RevisePolicy(policy);
}

void Faults::Heal() {
  healed_ = true;
  trace_.Say("all is healed");
  cluster_.Heal();
  // One that was made before the model was known may not fit it, and the job waits for another.
  cluster_.coordinator().Submit(UpdateSyncPolicy{.job = "job"},
                                [](const absl::StatusOr<Reply>&) {});
}

}  // namespace lockstep::sim
