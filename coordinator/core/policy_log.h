// What requests that end up in the control log bring about: to change the policy, to
// synchronise once, to drain a worker, to make a checkpoint. Pure decisions; the state
// machine appends what they return.
#ifndef LOCKSTEP_COORDINATOR_CORE_POLICY_LOG_H_
#define LOCKSTEP_COORDINATOR_CORE_POLICY_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

// A short text that differs whenever the job, the time at which it was created,
// the revision or the policy differ.
std::string PolicyEtag(const std::string& job, absl::Time job_create_time, Revision revision,
                       const SyncPolicy& policy);

// The revision that `update` makes; the newest, if its policy is the same.
// Errors:
//   InvalidArgument: the policy is not valid; or, of a model that is known, a
//     pattern matches no buffer, a buffer's element type lacks its operation, or
//     members of the epoch differ in a buffer that would be synchronised. The
//     model is KnownModel(), and a pattern may also match a buffer that only some
//     other worker has.
//   Unavailable: not all members of the epoch came back since the coordinator was
//     started again, so what they have is not known.
//   Aborted: the etag is not the newest revision's.
//   ResourceExhausted: the job's log is full.
absl::StatusOr<PolicyHistoryEntry> DecideRevision(const JobState& job,
                                                  const UpdateSyncPolicy& update,
                                                  absl::Time wall_time);

// Whether the job can synchronise once. Errors:
//   InvalidArgument: nothing is selected, or the root is no member.
//   FailedPrecondition: no epoch runs. ResourceExhausted: the job's log is full.
absl::Status CheckSyncOnce(const JobState& job, const SyncOnce& what);

// Errors: ResourceExhausted: the job's log is full.
absl::Status CheckLogRoom(const JobState& job);

// Whether the job can take the entry of a request that asks the members for something
// that only a running epoch can do: a drain, a checkpoint.
// Errors: FailedPrecondition: no epoch runs, or it ends already. ResourceExhausted: the
//   job's log is full.
absl::Status CheckEpochRunsOn(const JobState& job);

// Whether the member can be drained. Errors: those of CheckEpochRunsOn();
//   NotFound: there is no such worker; FailedPrecondition: it is no member, or too few
//   would be left.
absl::Status CheckDrain(const JobState& job, const DrainWorker& drain);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_POLICY_LOG_H_
