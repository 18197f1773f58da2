#include "coordinator/core/state.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/policy/model_check.h"
#include "coordinator/core/names.h"

namespace lockstep {
namespace {

absl::Status CheckDuration(absl::string_view field, absl::Duration value, absl::Duration least) {
  constexpr absl::Duration kLongest = absl::Hours(24);
  if (value >= least && value <= kLongest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", absl::FormatDuration(value), "; it must be between ",
                   absl::FormatDuration(least), " and ", absl::FormatDuration(kLongest)));
}

absl::Status CheckWorkers(const JobSpec& spec) {
  if (spec.min_workers < 1 || spec.min_workers > kMaxWorldSize) {
    return absl::InvalidArgumentError(absl::StrCat("min_workers is ", spec.min_workers,
                                                   "; it must be between 1 and ",
                                                   kMaxWorldSize));
  }
  if (spec.max_workers != 0 &&
      (spec.max_workers < spec.min_workers || spec.max_workers > kMaxWorldSize)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_workers is ", spec.max_workers, "; it must be 0 or between min_workers (",
                     spec.min_workers, ") and ", kMaxWorldSize));
  }
  if (spec.workers.size() > static_cast<std::size_t>(kMaxWorkersPerJob)) {
    return absl::InvalidArgumentError(absl::StrCat("workers lists ", spec.workers.size(),
                                                   " names; at most ", kMaxWorkersPerJob,
                                                   " are allowed"));
  }
  std::set<std::string> seen;
  for (const std::string& worker : spec.workers) {
    if (!IsWorkerName(worker)) {
      return absl::InvalidArgumentError(
          absl::StrCat("workers lists ", Quoted(worker), "; ", kWorkerNameRule));
    }
    if (!seen.insert(worker).second) {
      return absl::InvalidArgumentError(absl::StrCat("workers lists '", worker, "' twice"));
    }
  }
  if (!spec.workers.empty() && seen.size() < static_cast<std::size_t>(spec.min_workers)) {
    return absl::InvalidArgumentError(absl::StrCat("workers lists ", seen.size(),
                                                   " names, fewer than min_workers (",
                                                   spec.min_workers, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

bool JobSpec::Lists(const std::string& worker) const {
  return workers.empty() || std::find(workers.begin(), workers.end(), worker) != workers.end();
}

absl::Status Validate(const JobSpec& spec) {
  if (!IsJobName(spec.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("name is ", Quoted(spec.name), "; ", kJobNameRule));
  }
  absl::Status status = CheckWorkers(spec);
  if (status.ok()) status = CheckDuration("join_window", spec.join_window, absl::ZeroDuration());
  if (status.ok()) status = CheckDuration("lease", spec.lease, absl::Milliseconds(100));
  if (status.ok()) {
    status = CheckDuration("ready_timeout", spec.ready_timeout, absl::Milliseconds(100));
  }
  if (status.ok()) {
    status = CheckDuration("stall_timeout", spec.stall_timeout, absl::ZeroDuration());
  }
  if (status.ok() &&
      (spec.optimizer_replicas < 1 || spec.optimizer_replicas > kMaxOptimizerReplicas)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("optimizer_replicas is ", spec.optimizer_replicas,
                     "; it must be between 1 and ", kMaxOptimizerReplicas));
  }
  if (status.ok()) status = Validate(spec.policy);
  return status;
}

std::int64_t JobState::step() const {
  return epoch && epoch->highest_step > 0 ? epoch->highest_step : last_step;
}

int JobState::RankOf(const std::string& worker) const {
  if (!epoch) return -1;
  const auto it = std::lower_bound(
      epoch->members.begin(), epoch->members.end(), worker,
      [](const Member& member, const std::string& name) { return member.worker < name; });
  if (it == epoch->members.end() || it->worker != worker) return -1;
  return static_cast<int>(it - epoch->members.begin());
}

const WorkerState* JobState::FindMember(const std::string& worker) const {
  if (RankOf(worker) < 0 || epoch->left.contains(worker)) return nullptr;
  const auto it = workers.find(worker);
  return it == workers.end() ? nullptr : &it->second;
}

bool IsMember(const EpochState& epoch, const Member& member) {
  return std::find(epoch.members.begin(), epoch.members.end(), member) != epoch.members.end();
}

absl::Duration HeartbeatInterval(const JobSpec& spec) {
  return std::min(spec.lease / 5, absl::Seconds(1));
}

absl::Duration ReturnTime(const JobSpec& spec) { return HeartbeatInterval(spec) / 2; }

bool IsSilent(const JobState& job, const WorkerState& worker, MonoTime now) {
  return now > worker.last_heard + 2 * HeartbeatInterval(job.spec);
}

MonoTime StallsAt(const JobState& job, const WorkerState& worker) {
  const bool is_judged = job.stage == JobStage::kRunning &&
                         worker.stage == WorkerStage::kTraining &&
                         job.spec.stall_timeout > absl::ZeroDuration();
  if (!is_judged) return MonoTime::Infinite();
  const EpochState& now = *job.epoch;
  MonoTime since = MonoTime::Infinite();
  if (worker.step < now.highest_step) since = std::max(worker.step_since, now.highest_since);
  if (!now.stopped.empty() && !now.stopped.contains(worker.name)) {
    since = std::min(since, now.stopped_since);
  }
  return since == MonoTime::Infinite() ? since : since + job.spec.stall_timeout;
}

const Manifest* KnownModel(const JobState& job) {
  if (job.manifest) return &*job.manifest;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kAttending) return &worker.manifest;
  }
  return job.workers.empty() ? nullptr : &job.workers.begin()->second.manifest;
}

std::vector<absl::string_view> KnownBufferNames(const JobState& job) {
  const Manifest* const model = KnownModel(job);
  if (model == nullptr) return {};
  std::vector<absl::string_view> names = BufferNames(*model);
  std::set<absl::string_view> known;
  for (const auto& [name, worker] : job.workers) {
    if (worker.manifest.buffers == model->buffers) continue;
    if (known.empty()) known.insert(names.begin(), names.end());
    for (const TensorSpec& buffer : worker.manifest.buffers) {
      if (known.insert(buffer.name).second) names.push_back(buffer.name);
    }
  }
  return names;
}

bool IsEffective(const JobState& job, LogNumber number) {
  if (number > job.last_number()) return false;
  if (number <= job.in_force) return true;
  if (job.stage != JobStage::kRunning) return false;
  const LoggedEntry& logged = job.log[static_cast<std::size_t>(number.value() - 1)];
  if (logged.applied.empty()) return false;
  return std::all_of(job.epoch->members.begin(), job.epoch->members.end(),
                     [&](const Member& member) {
                       return logged.applied.contains(member.worker) ||
                              job.epoch->left.contains(member.worker);
                     });
}

}  // namespace lockstep
