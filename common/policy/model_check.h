// Whether a policy fits a model: what can be told before anything runs.
//
// Pure functions.
#ifndef LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_
#define LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

// What a look at all of a model's buffers may cost: the instructions of all
// patterns (Pattern::size(); those of an expression count kExpressionWeight times,
// plain names not at all) times the bytes of all names. All jobs of a coordinator
// wait for that long: a quarter of a second, and up to one for expressions that
// are made to be slow.
inline constexpr std::int64_t kMaxMatchWork = 1'000'000'000;
inline constexpr std::int64_t kExpressionWeight = 16;

// Checks that the policy's patterns can be matched against these names in
// bounded time. Errors: InvalidArgument says how much it is, and what to do.
absl::Status CheckMatchWork(const BufferRules& rules,
                            const std::vector<absl::string_view>& names);

// The names of the model's buffers, in its order.
std::vector<absl::string_view> BufferNames(const Manifest& manifest);

// Checks that each pattern of the policy, rules included, matches a buffer of the
// model. Errors: InvalidArgument names each pattern that matches nothing (the
//   first five, and counts the others) and up to three buffer names that are near
//   to it; or a pattern that is malformed.
//   Also those of CheckMatchWork().
absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest);
// The same; `rules`: of a policy. `names`: of the buffers, each once.
absl::Status CheckPatternsMatch(const BufferRules& rules,
                                const std::vector<absl::string_view>& names);

// Checks that each buffer's element type has the operation that the policy gives
// it. Errors: InvalidArgument names the buffers (the first five, and counts the
//   others), their types, what decided, and what to do; or a malformed policy.
//   Also those of CheckMatchWork().
absl::Status CheckOperations(const SyncPolicy& policy, const Manifest& manifest);
// The same; `rules`: of a policy.
absl::Status CheckOperations(const BufferRules& rules, const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_MODEL_CHECK_H_
