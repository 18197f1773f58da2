// absl::Status <-> lockstep.v1.Status.
#ifndef LOCKSTEP_PROTO_CONVERT_STATUS_MESSAGE_H_
#define LOCKSTEP_PROTO_CONVERT_STATUS_MESSAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/v1/membership.pb.h"

namespace lockstep {

// Status messages are cut to this many bytes: gRPC sends them percent-encoded,
// up to three times as long, among headers of at most 8 KiB.
inline constexpr int kMaxStatusMessageBytes = 2048;

// The message of a status as it can be sent: bytes that are not UTF-8 (which
// Protobuf would refuse) become '?', and what is too long is cut, ending in "...".
std::string SendableMessage(absl::string_view message);

// Never fails: a code outside the canonical ones becomes kUnknown, as gRPC has
// it, so that an error of a newer peer still arrives as an error.
v1::Status ToProto(const absl::Status& status);
absl::Status FromProto(const v1::Status& proto);

}  // namespace lockstep

#endif  // LOCKSTEP_PROTO_CONVERT_STATUS_MESSAGE_H_
