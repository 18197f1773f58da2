#include "coordinator/core/policy_log.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

void AddRoot(const Root& root, Digester& digester) {
  digester.Add(static_cast<std::int64_t>(root.index()));
  if (const auto* rank = std::get_if<RootRank>(&root)) digester.Add(rank->rank);
  if (const auto* worker = std::get_if<RootWorker>(&root)) digester.Add(worker->worker);
}

void AddPatterns(const std::vector<std::string>& patterns, Digester& digester) {
  digester.Add(static_cast<std::int64_t>(patterns.size()));
  for (const std::string& pattern : patterns) digester.Add(absl::string_view(pattern));
}

absl::Status CheckRoom(const JobState& job) {
  if (job.log.size() < static_cast<std::size_t>(kMaxRevisionsPerJob)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the control log of job '", job.spec.name, "' holds its limit of ",
                   kMaxRevisionsPerJob, " entries; go on with a new job"));
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

}  // namespace

std::string PolicyEtag(const std::string& job, Revision revision, const SyncPolicy& policy) {
  Digester digester;
  digester.Add(absl::string_view(job)).Add(revision.value());
  digester.Add(std::int64_t{policy.broadcast_buffers});
  AddPatterns(policy.allow_list, digester);
  AddPatterns(policy.ignore_list, digester);
  digester.Add(static_cast<std::int64_t>(policy.operation));
  AddRoot(policy.root, digester);
  digester.Add(std::int64_t{policy.schedule.at_start})
      .Add(policy.schedule.every_forwards)
      .Add(policy.schedule.every_steps)
      .Add(std::int64_t{policy.schedule.before_evaluation});
  digester.Add(std::int64_t{policy.broadcast_parameters_at_start});
  return absl::StrFormat("%016x", digester.Finish());
}

absl::StatusOr<PolicyHistoryEntry> DecideRevision(const JobState& job,
                                                  const UpdateSyncPolicy& update,
                                                  absl::Time wall_time) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(update.policy));
  const PolicyHistoryEntry& newest = job.newest_policy();
  if (!update.etag.empty() && update.etag != newest.etag) {
    return absl::AbortedError(absl::StrCat(
        "the policy was changed in between: its newest revision is ", newest.revision.value(),
        " with etag ", newest.etag, ", not ", update.etag.substr(0, 80),
        "; read it and try again"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRoom(job));
  if (job.manifest && !update.allow_unmatched) {
    LOCKSTEP_RETURN_IF_ERROR(CheckPatternsMatch(update.policy, *job.manifest));
  }
  const Revision revision = newest.revision.next();
  return PolicyHistoryEntry{.revision = revision,
                            .policy = update.policy,
                            .number = job.last_number().next(),
                            .etag = PolicyEtag(job.spec.name, revision, update.policy),
                            .create_time = wall_time,
                            .author = update.author,
                            .reason = update.reason};
}

absl::Status CheckSyncOnce(const JobState& job, const SyncOnce& what) {
  if (!what.buffers && !what.parameters) {
    return absl::InvalidArgumentError("nothing to synchronise: select buffers, parameters or both");
  }
  if (job.stage != JobStage::kRunning) {
    return absl::FailedPreconditionError(
        absl::StrCat("job '", job.spec.name, "' does not run: ", job.detail));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(job, what.root));
  return CheckRoom(job);
}

}  // namespace lockstep
