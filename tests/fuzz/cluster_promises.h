// What holds for any state of the coordinator, however it came about. Pure.
#ifndef LOCKSTEP_TESTS_FUZZ_CLUSTER_PROMISES_H_
#define LOCKSTEP_TESTS_FUZZ_CLUSTER_PROMISES_H_

#include "absl/status/status.h"
#include "coordinator/core/state.h"

namespace lockstep {

// The core's invariants, but for one that workers can break: members who lie about the step at
// which an entry took effect are found out. Errors: Internal.
absl::Status CheckClusterState(const ClusterState& state);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_FUZZ_CLUSTER_PROMISES_H_
