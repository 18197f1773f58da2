// Caller: who makes a call, and to which jobs and worker names its roles are bound.
// Values and rules; any thread.
#ifndef LOCKSTEP_SECURITY_CALLER_H_
#define LOCKSTEP_SECURITY_CALLER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "security/roles.h"

namespace lockstep {

// The default is a caller of an unsecured coordinator, who is nobody and may do everything.
struct Caller {
  std::string name;               // for people and histories
  std::set<Role> roles;           // what it may do (CheckMayCall)
  std::set<std::string> jobs;     // only in these; empty: in all
  std::set<std::string> workers;  // attends only under these names; empty: under any

  friend bool operator==(const Caller&, const Caller&) = default;
};

// By a certificate's subject and DNS names: "ROLE.role.lockstep" gives a role, as in
// "operator.role.lockstep"; "JOB.job.lockstep" and "NAME.worker.lockstep" bind them. Other names
// say nothing.
Caller CallerOfCertificate(absl::string_view common_name, const std::vector<std::string>& names);

// Errors: PermissionDenied: the caller's roles are bound to other jobs.
absl::Status CheckMayUse(const Caller& caller, absl::string_view job);

// Errors: PermissionDenied: the caller is bound to other jobs or to other names of workers.
absl::Status CheckMayAttend(const Caller& caller, absl::string_view job, absl::string_view worker);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_CALLER_H_
