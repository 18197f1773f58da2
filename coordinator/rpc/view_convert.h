// Views: the coordinator's state as the API shows it.
//
// One way only; nobody sends a view back. Pure; thread-safe.
#ifndef LOCKSTEP_COORDINATOR_RPC_VIEW_CONVERT_H_
#define LOCKSTEP_COORDINATOR_RPC_VIEW_CONVERT_H_

#include "absl/status/statusor.h"
#include "coordinator/core/state.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

v1::Job ViewOfJob(const JobState& job);
v1::Worker ViewOfWorker(const JobState& job, const WorkerState& worker);
v1::SyncPolicyRevision ViewOfRevision(const JobState& job, const PolicyHistoryEntry& revision);

// The job with all its workers.
v1::WatchJobResponse ViewOfAll(const JobState& job);

// Errors: FailedPrecondition: there is no epoch now.
absl::StatusOr<v1::GetShardPlanResponse> ViewOfShardPlan(const JobState& job);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_VIEW_CONVERT_H_
