// The fold: how one record changes the state. Used live and in recovery alike,
// so that recovery is replay. Pure.
#ifndef LOCKSTEP_COORDINATOR_CORE_FOLD_H_
#define LOCKSTEP_COORDINATOR_CORE_FOLD_H_

#include "absl/status/status.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

// Changes what survives a restart, and nothing else: workers' streams, leases
// and deadlines are not its matter.
// Errors: DataLoss: the record contradicts the state; nothing was changed.
absl::Status Apply(const Record& record, ClusterState& state);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_FOLD_H_
