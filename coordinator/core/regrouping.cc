// CoordinatorFsm: how members stop an epoch, and why a new one is asked for.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/model_comparison.h"
#include "coordinator/core/policy_log.h"

namespace lockstep {
namespace {

constexpr absl::Duration kFirstRetryDelay = absl::Milliseconds(50);
constexpr absl::Duration kLongestRetryDelay = absl::Seconds(5);

absl::Duration RetryDelay(int fruitless) {
  absl::Duration delay = kFirstRetryDelay;
  for (int i = 1; i < fruitless && delay < kLongestRetryDelay; ++i) delay *= 2;
  return std::min(delay, kLongestRetryDelay);
}

}  // namespace

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const EpochStopped& message,
                          Effects& out) {
  if (!IsCurrent(job, worker, message.epoch, out)) return;
  NoteStep(job, worker, std::max(worker.step, message.step));
  EpochState& epoch = *job.epoch;
  const bool regroups = epoch.regroup.valid() && epoch.regroup <= worker.sent;
  if (message.why.ok() && regroups) {
    if (epoch.stopped.empty()) epoch.stopped_since = now_;
    epoch.stopped.insert(worker.name);
    return;
  }
  EndForError(job,
              absl::UnavailableError(absl::StrCat(
                  "worker '", worker.name, "' (rank ", job.RankOf(worker.name), ") of epoch ",
                  epoch.id.value(), " stopped behind step ", message.step, ": ",
                  message.why.ok() ? "it says that it regroups, which nobody asked for"
                                   : message.why.ToString())),
              out);
}

void CoordinatorFsm::EndIfAllStopped(JobState& job, Effects& out) {
  if (job.stage != JobStage::kRunning || job.epoch->stopped.empty()) return;
  const EpochState& epoch = *job.epoch;
  for (const Member& member : epoch.members) {
    if (!epoch.left.contains(member.worker) && !epoch.stopped.contains(member.worker)) return;
  }
  EndEpoch(job,
           absl::AbortedError(absl::StrCat("regrouped behind step ", job.step(), ", as entry ",
                                           epoch.regroup.value(), " asks")),
           out, /*regrouped=*/true);
}

void CoordinatorFsm::RegroupIfWorkersWait(MonoTime now, JobState& job, Effects& out) {
  std::vector<std::string> waiting;
  const auto find_waiting = [&] {
    waiting.clear();
    for (const auto& [name, worker] : job.workers) {
      const bool waits = worker.stage == WorkerStage::kAttending && !IsSilent(job, worker, now);
      if (waits) waiting.push_back(name);
    }
  };
  const bool is_open =
      job.stage == JobStage::kRunning && !job.epoch->regroup.valid() &&
      job.epoch->members.size() - job.epoch->left.size() <
          static_cast<std::size_t>(job.spec.LargestEpoch()) &&
      CheckLogRoom(job).ok();
  if (is_open) find_waiting();
  if (waiting.empty()) {
    job.regroup_at.reset();
    return;
  }
  if (!job.regroup_at) job.regroup_at = now + job.spec.join_window;
  if (now < *job.regroup_at) return;
  job.regroup_at.reset();
  // Not for one that could not train with the members.
  ModelComparison models(job.newest_policy().policy);
  for (const Member& member : job.epoch->members) {
    const WorkerState* const worker = job.FindMember(member.worker);
    if (worker == nullptr || worker->is_presumed) continue;
    if (TurnAwayOthersThan(job, *worker, models, out)) find_waiting();
    break;
  }
  if (waiting.empty()) return;
  Persist(EntryAppended{.job = job.spec.name,
                        .entry = {job.last_number().next(), Regroup{}},
                        .reason = absl::StrCat("to take in ", ListNames(waiting))},
          out);
}

void CoordinatorFsm::PutOutDrained(JobState& job, WorkerState& worker, Effects& out) {
  const absl::Status why = Drained(worker.name);
  if (worker.stream.valid()) out.send.push_back({worker.stream, AbortEpoch{job.last_epoch, why}});
  PutOut(job, std::string(worker.name), why, out);
}

void CoordinatorFsm::EndForError(JobState& job, const absl::Status& why, Effects& out) {
  const bool is_fruitless = job.epoch->highest_step <= job.last_step;
  EndEpoch(job, why, out);
  if (!is_fruitless) return;
  ++job.fruitless;
  const MonoTime earliest = now_ + RetryDelay(job.fruitless);
  job.retry_at = std::max(job.retry_at.value_or(earliest), earliest);
}

}  // namespace lockstep
