#include "security/roles.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

constexpr Role kRoles[] = {Role::kViewer, Role::kWorker, Role::kOperator};

const std::map<std::string, std::set<Role>, std::less<>>& Methods() {
  static const auto* const methods = [] {
    const std::set<Role> all(std::begin(kRoles), std::end(kRoles));
    const std::set<Role> view = {Role::kViewer, Role::kOperator};
    const std::set<Role> operate = {Role::kOperator};
    return new std::map<std::string, std::set<Role>, std::less<>>{
        {"/lockstep.v1.MembershipService/Attend", {Role::kWorker}},
        {"/lockstep.v1.JobService/GetJob", view},
        {"/lockstep.v1.JobService/ListJobs", view},
        {"/lockstep.v1.JobService/ListWorkers", view},
        {"/lockstep.v1.JobService/GetShardPlan", view},
        {"/lockstep.v1.JobService/WatchJob", view},
        {"/lockstep.v1.JobService/CreateJob", operate},
        {"/lockstep.v1.JobService/DeleteJob", operate},
        {"/lockstep.v1.JobService/DrainWorker", operate},
        {"/lockstep.v1.JobService/CheckpointNow", operate},
        {"/lockstep.v1.SyncPolicyService/GetSyncPolicy", view},
        {"/lockstep.v1.SyncPolicyService/ListSyncPolicyRevisions", view},
        {"/lockstep.v1.SyncPolicyService/PreviewSyncPolicy", view},
        {"/lockstep.v1.SyncPolicyService/UpdateSyncPolicy", {Role::kOperator, Role::kWorker}},
        {"/lockstep.v1.SyncPolicyService/SyncNow", operate},
        {"/grpc.health.v1.Health/Check", all},
        {"/grpc.health.v1.Health/Watch", all},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", view},
    };
  }();
  return *methods;
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kWorker:
      return "worker";
    case Role::kOperator:
      return "operator";
  }
  return "";
}

std::optional<Role> RoleOf(absl::string_view name) {
  for (const Role role : kRoles) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

absl::Status CheckMayCall(const std::set<Role>& roles, absl::string_view method) {
  const auto found = Methods().find(method);
  if (found == Methods().end()) {
    return absl::PermissionDeniedError(absl::StrCat("nobody may call ", method.substr(0, 200)));
  }
  const bool may =
      std::ranges::any_of(roles, [&](Role role) { return found->second.contains(role); });
  if (may) return absl::OkStatus();
  const auto name = [](std::string* out, Role role) { absl::StrAppend(out, RoleName(role)); };
  return absl::PermissionDeniedError(absl::StrCat(
      method, " takes the role ", absl::StrJoin(found->second, " or ", name), "; the caller ",
      roles.empty() ? "has none" : absl::StrCat("is ", absl::StrJoin(roles, ", ", name)),
      ". A role is given by a DNS name in the caller's certificate, as in operator.role.lockstep, or "
      "with its token"));
}

}  // namespace lockstep
