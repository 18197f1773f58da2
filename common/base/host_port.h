// HostPort: an address to listen on. Pure; any thread.
#ifndef LOCKSTEP_COMMON_BASE_HOST_PORT_H_
#define LOCKSTEP_COMMON_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

struct HostPort {
  std::string host;  // a name, "10.0.0.1" or "[::1]"
  std::uint16_t port = 0;
};

// Errors: InvalidArgument: not HOST:PORT.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);

// Whether only processes of this machine can reach the host: a name, or an address.
bool IsLoopback(absl::string_view host);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HOST_PORT_H_
