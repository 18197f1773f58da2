// CoordinatorFsm: how members are lost, as time tells.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "coordinator/core/coordinator_fsm.h"

namespace lockstep {
namespace {

absl::Duration Rounded(absl::Duration duration) {
  return absl::Trunc(duration, absl::Milliseconds(1));
}

// "worker 'w1' (rank 1) of epoch 3"
std::string Titled(const JobState& job, const std::string& member) {
  return absl::StrCat("worker '", member, "' (rank ", job.RankOf(member), ") of epoch ",
                      job.epoch->id.value());
}

// Whether the other members can do nothing but wait for this one.
bool IsWaitedFor(const JobState& job, const std::string& name) {
  if (job.FindMember(name) == nullptr) return false;
  if (job.stage == JobStage::kForming) return true;
  return !job.epoch->stopped.empty() && !job.epoch->stopped.contains(name);
}

}  // namespace

bool CoordinatorFsm::ExpireLeases(MonoTime now, JobState& job, Effects& out) {
  std::vector<std::string> silent, lost_members;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kLeft || now < worker.last_heard + job.spec.lease) continue;
    silent.push_back(name);
    if (job.RankOf(name) >= 0) lost_members.push_back(name);
  }
  if (silent.empty()) return false;

  absl::Status epoch_end;
  if (!lost_members.empty()) {
    const std::string& first = lost_members.front();
    std::string why = absl::StrCat(
        Titled(job, first), " was silent for ",
        absl::FormatDuration(Rounded(now - job.workers.at(first).last_heard)),
        ", longer than its lease");
    if (lost_members.size() > 1) {
      absl::StrAppend(&why, "; so were ",
                      ListNames({lost_members.begin() + 1, lost_members.end()}));
    }
    epoch_end = absl::UnavailableError(why);
  }
  for (const std::string& name : silent) {
    PutOut(job, name,
           absl::DeadlineExceededError(absl::StrCat(
               "worker '", name, "' was silent for longer than its lease of ",
               absl::FormatDuration(job.spec.lease), "; attend again")),
           out);
  }
  if (!epoch_end.ok()) EndEpoch(job, epoch_end, out);
  return true;
}

bool CoordinatorFsm::ExpireReadiness(MonoTime now, JobState& job, Effects& out) {
  if (job.stage != JobStage::kForming || now < job.epoch->ready_deadline) return false;
  std::vector<std::string> missing;
  for (const Member& member : job.epoch->members) {
    if (job.workers.at(member.worker).stage != WorkerStage::kReady) {
      missing.push_back(member.worker);
    }
  }
  const absl::Status why = absl::DeadlineExceededError(
      absl::StrCat("not ready in ", absl::FormatDuration(job.spec.ready_timeout), ": ",
                   ListNames(missing)));
  // Not to attend again by itself: if it hangs while its link lives, the others would
  // take it in and wait for it over and over.
  const absl::Status put_out =
      absl::AbortedError(absl::StrCat(why.message(), "; start it again"));
  for (const std::string& name : missing) PutOut(job, name, put_out, out);
  EndEpoch(job, why, out);
  return true;
}

bool CoordinatorFsm::ExpireReturns(MonoTime now, JobState& job, Effects& out) {
  if (!job.epoch) return false;
  std::vector<std::string> lost;
  for (const auto& [name, worker] : job.workers) {
    if (now >= ReturnDeadline(job, worker)) lost.push_back(name);
  }
  if (lost.empty()) return false;
  EndForError(job,
              absl::UnavailableError(absl::StrCat(
                  Titled(job, lost.front()), " lost its connection while the epoch ",
                  job.stage == JobStage::kForming ? "formed" : "stopped",
                  " and did not come back within ", absl::FormatDuration(ReturnTime(job.spec)),
                  lost.size() == 1
                      ? ""
                      : absl::StrCat("; so did ", ListNames({lost.begin() + 1, lost.end()})))),
              out);
  return true;
}

bool CoordinatorFsm::ExpireStalls(MonoTime now, JobState& job, Effects& out) {
  std::vector<std::string> stalled;
  for (const auto& [name, worker] : job.workers) {
    if (now >= StallsAt(job, worker)) stalled.push_back(name);
  }
  if (stalled.empty()) return false;
  const std::string& first = stalled.front();
  const bool others_stopped = !job.epoch->stopped.empty();
  const absl::Status why = absl::AbortedError(absl::StrCat(
      Titled(job, first), " stalled: it beats, but for ",
      absl::FormatDuration(job.spec.stall_timeout), " it stays at step ",
      job.workers.at(first).step,
      others_stopped ? ", and has not stopped as others have"
                     : absl::StrCat(" while others are at step ", job.epoch->highest_step),
      stalled.size() == 1
          ? ""
          : absl::StrCat("; so do ", ListNames({stalled.begin() + 1, stalled.end()}))));
  // Its link lives, so that it would attend again at once, and all would wait for it.
  for (const std::string& name : stalled) {
    PutOut(job, name, absl::AbortedError(absl::StrCat(why.message(), "; start it again")), out);
  }
  EndEpoch(job, why, out);
  return true;
}

MonoTime CoordinatorFsm::ReturnDeadline(const JobState& job, const WorkerState& worker) {
  if (worker.stage != WorkerStage::kSuspect || !worker.broke_at ||
      !IsWaitedFor(job, worker.name)) {
    return MonoTime::Infinite();
  }
  return *worker.broke_at + ReturnTime(job.spec);
}

MonoTime CoordinatorFsm::NextDeadline(const JobState& job) {
  MonoTime next = MonoTime::Infinite();
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kLeft) continue;
    next = std::min({next, worker.last_heard + job.spec.lease, ReturnDeadline(job, worker),
                     StallsAt(job, worker)});
  }
  for (const std::optional<MonoTime>& time : {job.window_end, job.regroup_at, job.retry_at}) {
    if (time) next = std::min(next, *time);
  }
  if (job.stage == JobStage::kForming) next = std::min(next, job.epoch->ready_deadline);
  return next;
}

}  // namespace lockstep
