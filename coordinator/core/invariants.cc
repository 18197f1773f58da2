#include <set>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/membership.h"
#include "coordinator/core/model_comparison.h"
#include "coordinator/core/state.h"

namespace lockstep {
namespace {

// A worker that takes no part may differ in what the newest policy synchronises: it
// came when another was the newest.
bool HasModelOf(const JobState& job, const WorkerState& worker, bool takes_part) {
  if (!takes_part) {
    return worker.manifest.parameters == job.manifest->parameters &&
           worker.manifest.optimizer == job.manifest->optimizer;
  }
  ModelComparison models(job.newest_policy().policy);
  return !models.FirstDifference("", *job.manifest, "", worker.manifest).has_value();
}

// Nothing, or the broken rule.
std::string FirstBrokenWorkerRule(const JobState& job, const WorkerState& worker) {
  const bool is_member = job.RankOf(worker.name) >= 0;
  const bool has_left = is_member && job.epoch->left.contains(worker.name);
  switch (worker.stage) {
    case WorkerStage::kAttending:
      if (is_member) return "attends as if it were no member";
      break;
    case WorkerStage::kPreparing:
    case WorkerStage::kReady:
      if (!is_member || job.stage != JobStage::kForming) return "prepares for no epoch";
      break;
    case WorkerStage::kTraining:
      if (!is_member || job.stage != JobStage::kRunning) return "trains in no epoch";
      break;
    case WorkerStage::kSuspect:
      if (worker.stream.valid()) return "is suspect with an open stream";
      break;
    case WorkerStage::kLeft:
      if (worker.stream.valid()) return "left with an open stream";
      break;
  }
  const bool is_away = worker.stage == WorkerStage::kSuspect || worker.stage == WorkerStage::kLeft;
  if (!is_away && !worker.stream.valid()) return "has no stream and is not suspect";
  if (has_left != (worker.stage == WorkerStage::kLeft)) return "left and is there";
  if (IsDrained(job, worker.name, worker.incarnation)) return "was drained and is there";
  if (worker.stream.valid() && worker.broke_at) return "has a stream that broke";
  if (worker.sent > job.last_number()) return "was sent entries that do not exist";
  if (job.manifest && !HasModelOf(job, worker, is_member && !has_left)) {
    return "has another model than the job";
  }
  if (is_member &&
      worker.incarnation != job.epoch->members[static_cast<std::size_t>(job.RankOf(worker.name))]
                                .incarnation) {
    return "is of another incarnation than the member";
  }
  return "";
}

std::string FirstBrokenRegroupRule(const JobState& job) {
  const EpochState& epoch = *job.epoch;
  int regroups = 0;
  for (auto i = static_cast<std::size_t>(epoch.log_number.value()); i < job.log.size(); ++i) {
    if (!std::holds_alternative<Regroup>(job.log[i].entry.decision)) continue;
    ++regroups;
    if (job.log[i].entry.number != epoch.regroup) return "regroups for an entry it has not";
  }
  if (regroups != (epoch.regroup.valid() ? 1 : 0)) return "has not one Regroup for one regroup";
  if (job.regroup_at && (job.stage != JobStage::kRunning || regroups > 0)) {
    return "waits to regroup an epoch that does not run, or regroups already";
  }
  if (!epoch.stopped.empty() && regroups == 0) return "has members that stopped without a Regroup";
  std::size_t awaited = 0;
  for (const Member& member : epoch.members) {
    if (!epoch.left.contains(member.worker) && !epoch.stopped.contains(member.worker)) ++awaited;
  }
  if (awaited == 0) return "has an epoch that all have stopped";
  for (const std::string& stopped : epoch.stopped) {
    if (job.RankOf(stopped) < 0) return "has one that stopped and is no member";
  }
  return "";
}

std::string FirstBrokenEpochRule(const JobState& job) {
  if (!job.epoch && job.regroup_at) return "waits to regroup no epoch";
  if (!job.epoch) return job.stage == JobStage::kWaiting ? "" : "forms or runs without an epoch";
  const EpochState& epoch = *job.epoch;
  const bool is_running = epoch.stage == EpochStage::kRunning;
  if (job.stage != (is_running ? JobStage::kRunning : JobStage::kForming)) {
    return "and its epoch disagree on the stage";
  }
  if (epoch.id != job.last_epoch) return "runs an epoch that is not its newest";
  if (epoch.members.empty()) return "has an epoch without members";
  if (epoch.plan.shards.size() != epoch.members.size()) return "has not one shard per member";
  if (epoch.left.size() >= epoch.members.size()) return "has an epoch that all have left";
  if (job.in_force > epoch.log_number) return "has more entries in force than were proposed";
  for (std::size_t i = 0; i < epoch.members.size(); ++i) {
    if (!job.spec.Lists(epoch.members[i].worker)) return "has a member that it does not list";
    if (!job.workers.contains(epoch.members[i].worker)) return "has a member that is gone";
    if (i > 0 && epoch.members[i - 1].worker >= epoch.members[i].worker) {
      return "has members that are not sorted by name";
    }
  }
  if (job.window_end) return "has an open join window and an epoch";
  if (job.retry_at) return "waits to propose an epoch and has one";
  return FirstBrokenRegroupRule(job);
}

std::string FirstBrokenLogRule(const JobState& job) {
  if (job.policies.empty()) return "has no policy";
  Revision revision;
  for (const PolicyHistoryEntry& policy : job.policies) {
    if (policy.revision != revision.next()) return "skips a revision";
    revision = policy.revision;
  }
  LogNumber number;
  for (const LoggedEntry& logged : job.log) {
    if (logged.entry.number != number.next()) return "skips a log number";
    number = logged.entry.number;
    std::set<std::int64_t> steps;
    for (const auto& [worker, step] : logged.applied) steps.insert(step);
    if (steps.size() > 1) {
      return absl::StrCat("is not in step: entry ", number.value(),
                          " took effect after different steps");
    }
  }
  if (!job.violation.empty()) return absl::StrCat("is not in step: ", job.violation);
  return "";
}

}  // namespace

absl::Status CheckInvariants(const ClusterState& state) {
  std::set<StreamId> streams;
  for (const auto& [name, job] : state.jobs) {
    std::string broken = FirstBrokenEpochRule(job);
    if (broken.empty()) broken = FirstBrokenLogRule(job);
    if (name != job.spec.name) broken = "is stored under another name";
    if (!broken.empty()) return absl::InternalError(absl::StrCat("job '", name, "' ", broken));
    for (const auto& [worker_name, worker] : job.workers) {
      broken = FirstBrokenWorkerRule(job, worker);
      if (worker_name != worker.name) broken = "is stored under another name";
      if (worker.stream.valid() && !streams.insert(worker.stream).second) {
        broken = "shares its stream";
      }
      if (!broken.empty()) {
        return absl::InternalError(
            absl::StrCat("job '", name, "': worker '", worker_name, "' ", broken));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
