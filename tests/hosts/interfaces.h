// Network interfaces of the calling thread's network namespace, made by system calls.
//
// Errors of all: Internal: what the system said, and of which interface. Thread-safe.
#ifndef LOCKSTEP_TESTS_HOSTS_INTERFACES_H_
#define LOCKSTEP_TESTS_HOSTS_INTERFACES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// A new TAP device, gone when the last descriptor of it is closed: reads and writes are one
// Ethernet frame each, without a header that would leave checksums or segmentation to the reader.
// Reads do not block; programs that are started inherit the descriptor.
absl::StatusOr<int> OpenTap(const std::string& name);

absl::Status AddBridge(const std::string& name);
absl::Status RemoveBridge(const std::string& name);
absl::Status PlugIn(const std::string& bridge, const std::string& interface);

// An IPv4 address whose first 24 bits are the network's.
absl::Status SetAddress(const std::string& interface, const std::string& address);
absl::Status BringUp(const std::string& interface);
absl::Status TakeDown(const std::string& interface);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_INTERFACES_H_
