// absl::Duration and absl::Time <-> google.protobuf.Duration and Timestamp.
#ifndef LOCKSTEP_PROTO_CONVERT_TIME_CONVERT_H_
#define LOCKSTEP_PROTO_CONVERT_TIME_CONVERT_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace lockstep {

// What the message cannot hold becomes its nearest value: +-10,000 years, whole
// nanoseconds (towards zero).
google::protobuf::Duration ToProto(absl::Duration duration);
// Likewise: years 1 to 9999, whole nanoseconds (downwards).
google::protobuf::Timestamp ToProto(absl::Time time);

// Errors: InvalidArgument names `seconds` or `nanos` when it is outside what the
// message's definition allows, or when their signs differ.
absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto);
absl::StatusOr<absl::Time> FromProto(const google::protobuf::Timestamp& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_TIME_CONVERT_H_
