#include "proto/convert/status_convert.h"

#include "proto/convert/status_message.h"

namespace lockstep {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      SendableMessage(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  const int code = status.error_code();
  const bool is_canonical = code >= 0 && code <= 16;
  return absl::Status(
      is_canonical ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

}  // namespace lockstep
