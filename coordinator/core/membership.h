// What a worker's Hello means to a job: a pure decision.
#ifndef LOCKSTEP_COORDINATOR_CORE_MEMBERSHIP_H_
#define LOCKSTEP_COORDINATOR_CORE_MEMBERSHIP_H_

#include <string>

#include "absl/status/status.h"
#include "common/protocol/messages.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

enum class Greeting {
  kRefuse,   // the stream ends with `why`
  kJoin,     // a worker that is not known, or known from before: it attends
  kReplace,  // a newer start of a known worker: the older is over
  kRejoin,   // a member that lost its epoch: the epoch is over, it attends
  kPropose,  // a member that did not get the proposal: it is sent again
  kResume,   // a member that comes back to its epoch
  kAlreadyLeft,  // its Leave had arrived: the stream ends with OK
};

struct HelloDecision {
  Greeting greeting = Greeting::kRefuse;
  absl::Status why;
};

// A Hello of an epoch that is over refuses nobody: unless it is kResume, the worker
// is told that and attends.
HelloDecision DecideHello(const JobState& job, const Hello& hello);

// Whether that start of the worker was drained, and what it is told.
bool IsDrained(const JobState& job, const std::string& worker, Incarnation incarnation);
absl::Status Drained(const std::string& worker);

// Whether a message of `epoch` is of the one that the worker takes part in. If not, the
// worker is told that its epoch is over.
bool IsCurrent(const JobState& job, const WorkerState& worker, Epoch epoch, Effects& out);

// What a worker is told of an epoch that is over.
AbortEpoch EpochIsOver(const JobState& job, Epoch epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_MEMBERSHIP_H_
