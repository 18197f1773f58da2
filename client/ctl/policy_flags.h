// Flags that several policy commands have in common.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_FLAGS_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_FLAGS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/ctl/policy_edit.h"

namespace lockstep {

// What to make of a policy. `*flags` outlives parsing.
struct EditFlags {
  PolicyEdit edit;
  std::string from;
};
// Returns --from. The command's footer explains patterns and rules, then shows
// `examples`, as AddExample() takes them.
CLI::Option* AddEditFlags(CLI::App* command, EditFlags* flags,
                          const std::vector<std::string>& examples);

// The edit, with the policy that --from names read. Errors: those of ReadPolicy().
absl::StatusOr<PolicyEdit> ReadEdit(const EditFlags& flags);

// How a new policy is sent.
struct SendFlags {
  std::string author;
  std::string reason;
  bool allow_unmatched = false;
  bool validate_only = false;
  bool wait = false;
};
enum class Checking { kNotOffered, kOffered };  // --validate-only
void AddSendFlags(CLI::App* command, Checking checking, SendFlags* flags);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_FLAGS_H_
