// Roles: what a caller may do. A table of all methods; what is not in it nobody may call.
// Pure; any thread.
#ifndef LOCKSTEP_SECURITY_ROLES_H_
#define LOCKSTEP_SECURITY_ROLES_H_

#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep {

enum class Role {
  kViewer,    // sees jobs, workers and policies
  kWorker,    // takes part in jobs; training code may also revise its job's policy
  kOperator,  // makes, changes and deletes jobs, and all that a viewer does
};

absl::string_view RoleName(Role role);  // "viewer"
std::optional<Role> RoleOf(absl::string_view name);

// `method`: "/lockstep.v1.JobService/GetJob". Errors: PermissionDenied says which role is needed,
// or that nobody may call it.
absl::Status CheckMayCall(const std::set<Role>& roles, absl::string_view method);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_ROLES_H_
