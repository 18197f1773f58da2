// absl::Status <-> grpc::Status, which gRPC 1.51 does not convert itself. The
// only file here that includes gRPC.
#ifndef LOCKSTEP_PROTO_CONVERT_STATUS_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_STATUS_CONVERT_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace lockstep {

// Codes have the same numbers on both sides. The message goes as
// SendableMessage(); payloads and details do not travel.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code outside the canonical ones becomes kUnknown.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_STATUS_CONVERT_H_
