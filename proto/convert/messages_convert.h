// The messages of an Attend stream and the entries of the control log
// <-> lockstep.v1.
#ifndef LOCKSTEP_PROTO_CONVERT_MESSAGES_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_MESSAGES_CONVERT_H_

#include "absl/status/statusor.h"
#include "common/protocol/control_log.h"
#include "common/protocol/messages.h"
#include "lockstep/v1/membership.pb.h"

namespace lockstep {

v1::SyncCounters ToProto(const SyncCounters& counters);
v1::ControlEntry ToProto(const ControlEntry& entry);
v1::AttendRequest ToProto(const WorkerMessage& message);
v1::AttendResponse ToProto(const CoordinatorMessage& message);

// Errors: InvalidArgument names the field that is missing or out of range; an
// unknown or absent member of a oneof is named by the oneof.
absl::StatusOr<ControlEntry> FromProto(const v1::ControlEntry& proto);
absl::StatusOr<WorkerMessage> FromProto(const v1::AttendRequest& proto);
absl::StatusOr<CoordinatorMessage> FromProto(const v1::AttendResponse& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_MESSAGES_CONVERT_H_
