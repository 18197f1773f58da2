// A sync policy as text: textproto or JSON to read, textproto to show and edit.
//
// Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_TEXT_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// Text that begins with '{' is JSON, everything else textproto. `source` stands
// in messages for where the text is from. Errors: InvalidArgument: malformed, at
//   SOURCE:LINE:COLUMN where that is known, or a policy that Validate() refuses.
absl::StatusOr<v1::SyncPolicy> ParsePolicy(const std::string& text, const std::string& source);

// The policy in textproto under comments that explain fields, operations and
// patterns. ParsePolicy() makes the same policy of it.
std::string PolicyText(const std::string& job, const v1::SyncPolicyRevision& revision);

// Whether there is nothing but space and comments.
bool IsEmptied(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_TEXT_H_
