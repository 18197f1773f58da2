// Root, Schedule, SyncRule and SyncPolicy <-> lockstep.v1.
#ifndef LOCKSTEP_PROTO_CONVERT_POLICY_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_POLICY_CONVERT_H_

#include "absl/status/statusor.h"
#include "common/policy/sync_policy.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

v1::Root ToProto(const Root& root);
v1::Schedule ToProto(const Schedule& schedule);
v1::SyncRule ToProto(const SyncRule& rule);
v1::SyncPolicy ToProto(const SyncPolicy& policy);

// What is not set gets the default that policy.proto states. Errors:
// InvalidArgument; the policy's as Validate(SyncPolicy) words them.
absl::StatusOr<Root> FromProto(const v1::Root& proto);
absl::StatusOr<Schedule> FromProto(const v1::Schedule& proto);
absl::StatusOr<SyncRule> FromProto(const v1::SyncRule& proto);
absl::StatusOr<SyncPolicy> FromProto(const v1::SyncPolicy& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_POLICY_CONVERT_H_
