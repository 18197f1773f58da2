#include "common/base/host_port.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", text, "': give HOST:PORT, such as 127.0.0.1:7070"));
  }
  return HostPort{text.substr(0, colon), static_cast<std::uint16_t>(port)};
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "[::1]") return true;
  // Not "127.example.org".
  return absl::StartsWith(host, "127.") && std::ranges::all_of(host, [](char c) {
           return absl::ascii_isdigit(c) || c == '.';
         });
}

}  // namespace lockstep
