#include "security/caller.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

absl::string_view Who(const Caller& caller) {
  return caller.name.empty() ? absl::string_view("the caller") : absl::string_view(caller.name);
}

}  // namespace

Caller CallerOfCertificate(absl::string_view common_name, const std::vector<std::string>& names) {
  Caller caller = {.name = std::string(common_name)};
  for (absl::string_view name : names) {
    if (absl::ConsumeSuffix(&name, ".role.lockstep")) {
      if (const std::optional<Role> role = RoleOf(name)) caller.roles.insert(*role);
    } else if (absl::ConsumeSuffix(&name, ".job.lockstep")) {
      caller.jobs.emplace(name);
    } else if (absl::ConsumeSuffix(&name, ".worker.lockstep")) {
      caller.workers.emplace(name);
    }
  }
  return caller;
}

absl::Status CheckMayUse(const Caller& caller, absl::string_view job) {
  if (caller.jobs.empty() || caller.jobs.contains(std::string(job))) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(Who(caller), " is bound to the job ", absl::StrJoin(caller.jobs, " or "),
                   " and may not use job '", job.substr(0, 200), "'"));
}

absl::Status CheckMayAttend(const Caller& caller, absl::string_view job,
                            absl::string_view worker) {
  const absl::Status use = CheckMayUse(caller, job);
  if (!use.ok()) return use;
  if (caller.workers.empty() || caller.workers.contains(std::string(worker))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(Who(caller), " may attend as worker ", absl::StrJoin(caller.workers, " or "),
                   ", and not as '", worker.substr(0, 200), "'"));
}

}  // namespace lockstep
