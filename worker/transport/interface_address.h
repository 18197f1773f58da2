// The address by which other hosts reach this one through a network interface. Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_INTERFACE_ADDRESS_H_
#define LOCKSTEP_WORKER_TRANSPORT_INTERFACE_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// "127.0.0.1" or "[fd00::1]", as a port may follow: the first IPv4 address of the interface,
// such as "lo" or "eth0", else the first IPv6 address that holds beyond the link.
// Errors: FailedPrecondition: there is no such interface, or it has no address.
absl::StatusOr<std::string> InterfaceAddress(const std::string& interface);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_INTERFACE_ADDRESS_H_
