// grpc::Status and absl::Status: the same codes under two names. Thread-safe.
#ifndef LOCKSTEP_PROTO_GRPC_STATUS_GRPC_STATUS_H_
#define LOCKSTEP_PROTO_GRPC_STATUS_GRPC_STATUS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/status.h"

namespace lockstep {

// Messages travel in trailers, whose size peers limit.
inline constexpr std::size_t kMaxStatusMessageBytes = 4096;

inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxStatusMessageBytes) {
    message.resize(kMaxStatusMessageBytes);
    absl::StrAppend(&message, " ...");
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

inline absl::Status ToAbslStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_GRPC_STATUS_GRPC_STATUS_H_
