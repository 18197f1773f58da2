#include "proto/convert/time_convert.h"

#include <algorithm>
#include <cstdint>

#include "common/base/status_macros.h"
#include "proto/convert/field.h"

namespace lockstep {
namespace {

using convert_internal::BadField;

// The ranges that google/protobuf/{duration,timestamp}.proto state.
constexpr std::int64_t kMaxDurationSeconds = 315'576'000'000;
constexpr std::int64_t kMinTimestampSeconds = -62'135'596'800;
constexpr std::int64_t kMaxTimestampSeconds = 253'402'300'799;
constexpr std::int64_t kMaxNanos = 999'999'999;

absl::Status InRange(absl::string_view field, std::int64_t value, std::int64_t least,
                     std::int64_t most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return BadField(field,
                  absl::StrCat("is ", value, "; expected ", least, " to ", most));
}

}  // namespace

google::protobuf::Duration ToProto(absl::Duration duration) {
  const absl::Duration longest = absl::Seconds(kMaxDurationSeconds) + absl::Nanoseconds(kMaxNanos);
  duration = std::clamp(duration, -longest, longest);
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(
      static_cast<std::int32_t>(absl::IDivDuration(duration, absl::Nanoseconds(1), &duration)));
  return proto;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  const absl::Time first = absl::FromUnixSeconds(kMinTimestampSeconds);
  const absl::Time last = absl::FromUnixSeconds(kMaxTimestampSeconds) + absl::Nanoseconds(kMaxNanos);
  time = std::clamp(time, first, last);
  google::protobuf::Timestamp proto;
  const std::int64_t seconds = absl::ToUnixSeconds(time);  // rounds down
  proto.set_seconds(seconds);
  proto.set_nanos(static_cast<std::int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto) {
  LOCKSTEP_RETURN_IF_ERROR(
      InRange("seconds", proto.seconds(), -kMaxDurationSeconds, kMaxDurationSeconds));
  LOCKSTEP_RETURN_IF_ERROR(InRange("nanos", proto.nanos(), proto.seconds() > 0 ? 0 : -kMaxNanos,
                                   proto.seconds() < 0 ? 0 : kMaxNanos));
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

absl::StatusOr<absl::Time> FromProto(const google::protobuf::Timestamp& proto) {
  LOCKSTEP_RETURN_IF_ERROR(
      InRange("seconds", proto.seconds(), kMinTimestampSeconds, kMaxTimestampSeconds));
  LOCKSTEP_RETURN_IF_ERROR(InRange("nanos", proto.nanos(), 0, kMaxNanos));
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

}  // namespace lockstep
