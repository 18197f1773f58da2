#include "coordinator/core/policy_log.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/model_check.h"
#include "coordinator/core/model_comparison.h"

namespace lockstep {

absl::Status CheckLogRoom(const JobState& job) {
  if (job.log.size() < static_cast<std::size_t>(kMaxRevisionsPerJob)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the control log of job '", job.spec.name, "' holds its limit of ",
                   kMaxRevisionsPerJob, " entries; go on with a new job"));
}

namespace {

absl::Status CheckRuns(const JobState& job) {
  if (job.stage == JobStage::kRunning) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job '", job.spec.name, "' does not run: ", job.detail));
}

absl::Status CheckRoot(const JobState& job, const Root& root) {
  const std::size_t world_size = job.epoch->members.size();
  if (const auto* rank = std::get_if<RootRank>(&root)) {
    if (rank->rank < 0 || rank->rank >= static_cast<std::int64_t>(world_size)) {
      return absl::InvalidArgumentError(absl::StrCat("root is rank ", rank->rank, "; epoch ",
                                                     job.epoch->id.value(), " has ranks 0 to ",
                                                     world_size - 1));
    }
  }
  if (const auto* worker = std::get_if<RootWorker>(&root)) {
    if (job.RankOf(worker->worker) < 0) {
      std::vector<std::string> names;
      for (const Member& member : job.epoch->members) names.push_back(member.worker);
      return absl::InvalidArgumentError(
          absl::StrCat("root is worker '", worker->worker, "', no member of epoch ",
                       job.epoch->id.value(), "; its members are ", ListNames(names)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMembersCameBack(const JobState& job) {
  if (!job.epoch) return absl::OkStatus();
  std::vector<std::string> missing;
  for (const Member& member : job.epoch->members) {
    const WorkerState* const worker = job.FindMember(member.worker);
    if (worker != nullptr && worker->is_presumed) missing.push_back(member.worker);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the coordinator was started again, and ", ListNames(missing), " of epoch ",
      job.epoch->id.value(), missing.size() == 1 ? " has" : " have",
      " not come back yet, so that no new policy can be held against the models; ask again (the "
      "lease is ", absl::FormatDuration(job.spec.lease), ")"));
}

// Whether all members of the epoch have the same of what `policy` synchronises,
// and the same as the job.
absl::Status CheckMembersAgree(const JobState& job, const SyncPolicy& policy, BufferRules rules) {
  if (!job.epoch) return absl::OkStatus();
  ModelComparison models(policy, std::move(rules));
  const WorkerState* first = nullptr;
  std::optional<std::string> difference;
  for (const Member& member : job.epoch->members) {
    const WorkerState* const worker = job.FindMember(member.worker);
    if (worker == nullptr || difference) continue;
    if (first == nullptr) {
      first = worker;
    } else {
      difference =
          models.FirstDifference(first->name, first->manifest, worker->name, worker->manifest);
    }
  }
  if (first != nullptr && !difference) {
    difference = models.FirstDifference("the job", *job.manifest, first->name, first->manifest);
  }
  if (!difference) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the members of epoch ", job.epoch->id.value(),
      " differ in what would be synchronised: ", *difference,
      "; leave it to the ranks by the ignore list or a rule with the operation none"));
}

}  // namespace

std::string PolicyEtag(const std::string& job, absl::Time job_create_time, Revision revision,
                       const SyncPolicy& policy) {
  Digester digester;
  digester.Add(absl::string_view(job))
      .Add(absl::ToUnixNanos(job_create_time))
      .Add(revision.value())
      .Add(static_cast<std::int64_t>(Digest(policy)));
  return absl::StrFormat("%016x", digester.Finish());
}

absl::StatusOr<PolicyHistoryEntry> DecideRevision(const JobState& job,
                                                  const UpdateSyncPolicy& update,
                                                  absl::Time wall_time) {
  const PolicyHistoryEntry& newest = job.newest_policy();
  if (!update.etag.empty() && update.etag != newest.etag) {
    return absl::AbortedError(absl::StrCat(
        "the policy was changed in between: its newest revision is ", newest.revision.value(),
        " with etag ", newest.etag, ", not ", Quoted(update.etag),
        "; read it and try again"));
  }
  // A change said again changes nothing, and needs no look at the model.
  if (update.policy == newest.policy) return newest;
  LOCKSTEP_ASSIGN_OR_RETURN(BufferRules rules, BufferRules::Compile(update.policy));
  LOCKSTEP_RETURN_IF_ERROR(CheckLogRoom(job));
  if (const Manifest* const model = KnownModel(job)) {
    LOCKSTEP_RETURN_IF_ERROR(CheckMembersCameBack(job));
    if (!update.allow_unmatched) {
      LOCKSTEP_RETURN_IF_ERROR(CheckPatternsMatch(rules, KnownBufferNames(job)));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOperations(rules, *model));
    LOCKSTEP_RETURN_IF_ERROR(CheckMembersAgree(job, update.policy, std::move(rules)));
  }
  const Revision revision = newest.revision.next();
  return PolicyHistoryEntry{.revision = revision,
                            .policy = update.policy,
                            .number = job.last_number().next(),
                            .etag = PolicyEtag(job.spec.name, job.create_time, revision,
                                               update.policy),
                            .create_time = wall_time,
                            .author = update.author,
                            .reason = update.reason};
}

absl::Status CheckSyncOnce(const JobState& job, const SyncOnce& what) {
  if (!what.buffers && !what.parameters) {
    return absl::InvalidArgumentError("nothing to synchronise: select buffers, parameters or both");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRuns(job));
  if (what.root) LOCKSTEP_RETURN_IF_ERROR(CheckRoot(job, *what.root));
  return CheckLogRoom(job);
}

absl::Status CheckEpochRunsOn(const JobState& job) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRuns(job));
  if (job.epoch->regroup.valid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ", job.epoch->id.value(), " of job '", job.spec.name, "' regroups (entry ",
        job.epoch->regroup.value(), "); ask again when the next one runs"));
  }
  return CheckLogRoom(job);
}

absl::Status CheckDrain(const JobState& job, const DrainWorker& drain) {
  if (!job.workers.contains(drain.worker)) {
    return absl::NotFoundError(absl::StrCat("job '", job.spec.name, "' has no worker ",
                                            Quoted(drain.worker)));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochRunsOn(job));
  if (job.FindMember(drain.worker) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", drain.worker, "' is no member of epoch ", job.epoch->id.value(),
                     "; stop it, there is nothing to drain"));
  }
  std::int64_t left = static_cast<std::int64_t>(job.epoch->members.size()) -
                      static_cast<std::int64_t>(job.epoch->left.size()) - 1;
  for (const auto& [name, worker] : job.workers) {
    if (worker.stage == WorkerStage::kAttending) ++left;
  }
  if (left >= job.spec.min_workers || drain.allow_waiting) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("without worker '", drain.worker, "' ", left, " of at least ",
                   job.spec.min_workers, " workers are left, and the job would wait; start "
                   "another first, or allow it to wait"));
}

}  // namespace lockstep
