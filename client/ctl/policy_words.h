// The words of the command line for the parts of a sync policy, in both
// directions. What a policy says in sentences is Describe() in sync_policy.h.
//
// Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_WORDS_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_WORDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/policy/sync_policy.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// "mean-by-samples"; "default" for what is not set.
std::string OperationWord(v1::Operation operation);
// Errors: InvalidArgument lists the words.
absl::StatusOr<v1::Operation> ParseOperation(const std::string& word);

// A number is a rank, `lowest-rank` that one, everything else a worker's name.
// Errors: InvalidArgument: empty, or a number that is no rank.
absl::StatusOr<v1::Root> ParseRoot(const std::string& text);

// A rule as one argument: PATTERN OPERATION [KEY=VALUE]..., separated by spaces.
// Keys: root, every-forwards, every-steps, at-start, before-evaluation,
// before-checkpoint (the last three on or off). Naming one of the latter five
// gives the rule its own schedule, in which what is not named is off, but for
// at-start. Errors: InvalidArgument says which word, and what is expected.
absl::StatusOr<v1::SyncRule> ParseRule(const std::string& text);
// ParseRule() makes the same rule of it, if the pattern has no space and the root
// is no worker whose name ParseRoot() takes for something else.
std::string RuleText(const SyncRule& rule);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_WORDS_H_
