// When a policy's syncs are due. Pure functions over values.
#ifndef LOCKSTEP_COMMON_POLICY_SCHEDULE_H_
#define LOCKSTEP_COMMON_POLICY_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/policy/sync_policy.h"

namespace lockstep {

// Each is asked once per occasion. At start, only the schedule counts; later,
// nothing is due while the master switch is off.
bool BufferSyncDueAtStart(const SyncPolicy& policy);
// `forwards`: training forwards of this epoch so far, at most one per step
// counted, this one included: the first is 1. Due at each multiple of the period.
bool BufferSyncDueBeforeForward(const SyncPolicy& policy, std::int64_t forwards);
// `step`: steps committed so far, the last one included.
bool BufferSyncDueAfterStep(const SyncPolicy& policy, std::int64_t step);
bool BufferSyncDueBeforeEvaluation(const SyncPolicy& policy);

// The root's rank among `members` (worker names by rank). A rank or worker that
// is not there gives `fallback` = true and rank 0.
struct ResolvedRoot {
  int rank = 0;
  bool fallback = false;
};
ResolvedRoot ResolveRoot(const Root& root, const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_SCHEDULE_H_
