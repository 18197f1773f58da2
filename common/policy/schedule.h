// When a policy's syncs are due. Pure functions over values.
#ifndef LOCKSTEP_COMMON_POLICY_SCHEDULE_H_
#define LOCKSTEP_COMMON_POLICY_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/policy/sync_policy.h"

namespace lockstep {

// An occasion at which all ranks may synchronise.
enum class Moment {
  kStart,       // of an epoch
  kForward,     // before a training forward, at most one for each step
  kStep,        // after a step
  kEvaluation,  // before an evaluation
  kCheckpoint,  // before a checkpoint
};

// Whether buffers of that schedule are due. At start only the schedule counts;
// later nothing is due while the master switch is off. `count`: forwards of this
// epoch, or steps committed, this one included: the first is 1; due at each
// multiple of the period. Other moments have no count.
bool IsDue(bool broadcast_buffers, const Schedule& schedule, Moment moment, std::int64_t count = 0);

// What the master switch leaves of a schedule: off, nothing but the start.
Schedule InEffect(bool broadcast_buffers, const Schedule& schedule);

// Whether something that is done every `period` steps is due after step `step`;
// never if `period` is 0.
bool IsDueEvery(std::int64_t period, std::int64_t step);

// The root's rank among `members` (worker names by rank). A rank or worker that
// is not there gives `fallback` = true and rank 0.
struct ResolvedRoot {
  int rank = 0;
  bool fallback = false;
};
ResolvedRoot ResolveRoot(const Root& root, const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_SCHEDULE_H_
