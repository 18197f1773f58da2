#include "tests/fuzz/cluster_promises.h"

#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

ClusterState WithoutReports(ClusterState state) {
  for (auto& [name, job] : state.jobs) {
    if (job.violation.empty()) continue;
    job.violation.clear();
    for (LoggedEntry& logged : job.log) logged.applied.clear();
  }
  return state;
}

}  // namespace

absl::Status CheckClusterState(const ClusterState& state) {
  absl::Status kept = CheckInvariants(state);
  if (!kept.ok()) kept = CheckInvariants(WithoutReports(state));
  return Holds(kept.ok(), "the invariants hold", kept.message());
}

}  // namespace lockstep
