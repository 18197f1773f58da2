#include "proto/convert/status_message.h"

#include <cstddef>

#include "common/base/text.h"

namespace lockstep {

std::string SendableMessage(absl::string_view message) {
  constexpr absl::string_view kCut = "...";
  const bool is_cut = message.size() > kMaxStatusMessageBytes;
  // Cut first, so that the work is bounded; a character cut through goes below.
  if (is_cut) message = message.substr(0, kMaxStatusMessageBytes - kCut.size());
  std::string sendable;
  while (true) {
    const std::size_t good = WellFormedPrefix(message);
    sendable.append(message.data(), good);
    message.remove_prefix(good);
    if (message.empty()) break;
    sendable += '?';
    message.remove_prefix(1);
  }
  if (is_cut) sendable.append(kCut.data(), kCut.size());
  return sendable;
}

v1::Status ToProto(const absl::Status& status) {
  v1::Status proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(SendableMessage(status.message()));
  return proto;
}

absl::Status FromProto(const v1::Status& proto) {
  const bool is_canonical = proto.code() >= 0 && proto.code() <= 16;
  return absl::Status(is_canonical ? static_cast<absl::StatusCode>(proto.code())
                                   : absl::StatusCode::kUnknown,
                      SendableMessage(proto.message()));
}

}  // namespace lockstep
