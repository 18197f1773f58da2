// CoordinatorFsm: how members stop an epoch that goes over into the next one.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/membership.h"

namespace lockstep {

void CoordinatorFsm::Hear(JobState& job, WorkerState& worker, const EpochStopped& message,
                          Effects& out) {
  if (!IsCurrent(job, worker, message.epoch, out)) return;
  worker.step = std::max(worker.step, message.step);
  if (message.why.ok() && job.stage == JobStage::kRunning) {
    job.epoch->stopped.insert(worker.name);
    return;
  }
  EndEpoch(job,
           absl::UnavailableError(absl::StrCat(
               "worker '", worker.name, "' (rank ", job.RankOf(worker.name), ") of epoch ",
               job.epoch->id.value(), " stopped behind step ", message.step, ": ",
               message.why.ok() ? "it says that it regroups, but no step was taken"
                                : message.why.ToString())),
           out);
}

void CoordinatorFsm::EndIfAllStopped(JobState& job, Effects& out) {
  if (job.stage != JobStage::kRunning) return;
  const EpochState& epoch = *job.epoch;
  if (epoch.stopped.empty()) return;
  for (const Member& member : epoch.members) {
    if (!epoch.left.contains(member.worker) && !epoch.stopped.contains(member.worker)) return;
  }
  EndEpoch(job, absl::AbortedError(absl::StrCat("regrouped behind step ", job.step())), out);
}

}  // namespace lockstep
