// Manifest and ShardPlan <-> lockstep.v1.
#ifndef LOCKSTEP_PROTO_CONVERT_MODEL_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_MODEL_CONVERT_H_

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "lockstep/v1/membership.pb.h"

namespace lockstep {

v1::Manifest ToProto(const Manifest& manifest);
v1::ShardPlan ToProto(const ShardPlan& plan);

// Errors: InvalidArgument names the field (lists that are too long, an unknown
// dtype), or else the tensor or rank, as Validate words it.
absl::StatusOr<Manifest> FromProto(const v1::Manifest& proto);
absl::StatusOr<ShardPlan> FromProto(const v1::ShardPlan& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_MODEL_CONVERT_H_
