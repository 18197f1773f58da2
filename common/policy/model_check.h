// Whether a policy fits a model: what can be told before anything runs.
//
// Pure functions.
#ifndef LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_
#define LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_

#include "absl/status/status.h"
#include "common/manifest/manifest.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

// Checks that each pattern of the policy, rules included, matches a buffer of the
// model. Errors: InvalidArgument names each pattern that matches nothing (the
//   first five, and counts the others) and up to three buffer names that are near
//   to it; or a pattern that is malformed.
absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest);

// Checks that each buffer's element type has the operation that the policy gives
// it. Errors: InvalidArgument names the buffers (the first five, and counts the
//   others), their types, what decided, and what to do; or a malformed policy.
absl::Status CheckOperations(const SyncPolicy& policy, const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_
