// CoordinatorFsm: what people and tools ask for.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/policy_log.h"

namespace lockstep {

absl::StatusOr<JobState*> CoordinatorFsm::FindJob(const std::string& name) {
  const auto it = state_.jobs.find(name);
  if (it != state_.jobs.end()) return &it->second;
  return absl::NotFoundError(absl::StrCat("there is no job ", Quoted(name),
                                          "; create it with lockstepctl job create"));
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const CreateJob& request,
                                         Effects& out) {
  const JobSpec& spec = request.spec;
  LOCKSTEP_RETURN_IF_ERROR(Validate(spec));
  if (state_.jobs.contains(spec.name)) {
    return absl::AlreadyExistsError(absl::StrCat("job '", spec.name, "' exists already"));
  }
  if (state_.jobs.size() >= static_cast<std::size_t>(kMaxJobs)) {
    return absl::ResourceExhaustedError(absl::StrCat("the coordinator has its limit of ", kMaxJobs,
                                                     " jobs; delete one that is done"));
  }
  Persist(JobCreated{spec, wall_time}, out);
  unsettled_.insert(spec.name);
  return Reply();
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const DeleteJob& request,
                                         Effects& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(request.job));
  std::vector<std::string> attending;
  for (const auto& [name, worker] : job->workers) attending.push_back(name);
  if (!attending.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("job '", request.job, "' is attended by ",
                                                      ListNames(attending),
                                                      "; stop its workers first"));
  }
  Persist(JobDeleted{request.job}, out);
  wake_.erase(request.job);
  fits_.erase(request.job);
  unsettled_.insert(request.job);
  return Reply();
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const UpdateSyncPolicy& request,
                                         Effects& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(request.job));
  LOCKSTEP_ASSIGN_OR_RETURN(PolicyHistoryEntry revision, DecideRevision(*job, request, wall_time));
  const bool is_new = revision.revision != job->newest_policy().revision;
  if (is_new && !request.validate_only) {
    // What stood in the way of an epoch may be no more.
    job->last_refusal.clear();
    job->unmatched.clear();
    Persist(EntryAppended{.job = request.job,
                          .entry = {revision.number,
                                    PolicyRevised{revision.revision, revision.policy}},
                          .author = revision.author,
                          .reason = revision.reason,
                          .create_time = wall_time},
            out);
    unsettled_.insert(request.job);
  }
  return Reply(std::move(revision));
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const SyncNow& request,
                                         Effects& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(request.job));
  LOCKSTEP_RETURN_IF_ERROR(CheckSyncOnce(*job, request.what));
  return Append(*job, request.what, wall_time, out);
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const DrainWorker& request,
                                         Effects& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(request.job));
  if (job->epoch && job->epoch->regroup.valid()) {
    // Said again.
    const auto index = static_cast<std::size_t>(job->epoch->regroup.value() - 1);
    const auto& regroup = std::get<Regroup>(job->log[index].entry.decision);
    if (!regroup.drain.empty() && regroup.drain == request.worker) {
      return Reply(job->epoch->regroup);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckDrain(*job, request));
  return Append(*job, Regroup{request.worker}, wall_time, out);
}

absl::StatusOr<Reply> CoordinatorFsm::Do(absl::Time wall_time, const CheckpointNow& request,
                                         Effects& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobState* const job, FindJob(request.job));
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochRunsOn(*job));
  return Append(*job, CheckpointOnce{}, wall_time, out);
}

Reply CoordinatorFsm::Append(const JobState& job, Decision decision, absl::Time wall_time,
                             Effects& out) {
  const LogNumber number = job.last_number().next();
  unsettled_.insert(job.spec.name);
  Persist(EntryAppended{.job = job.spec.name,
                        .entry = {number, std::move(decision)},
                        .create_time = wall_time},
          out);
  return Reply(number);
}

}  // namespace lockstep
