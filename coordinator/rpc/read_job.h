// Answers a unary call from the state of one job.
#ifndef LOCKSTEP_COORDINATOR_RPC_READ_JOB_H_
#define LOCKSTEP_COORDINATOR_RPC_READ_JOB_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/core/state.h"
#include "coordinator/rpc/completion.h"
#include "coordinator/runtime/coordinator.h"

namespace lockstep {

// Errors: InvalidArgument: empty, or longer than any job's name.
absl::Status CheckJobName(const std::string& job);

absl::Status NoSuchJob(const std::string& job);

// The answer to a look that found no state.
absl::Status NoState(const Coordinator& coordinator);

// `fill` runs on the coordinator's thread and makes the response; its status is
// the call's.
void ReadJob(Coordinator* coordinator, const std::string& job, SharedCompletion completion,
             std::function<absl::Status(const JobState&)> fill);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_READ_JOB_H_
