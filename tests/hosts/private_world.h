// A world of its own for a test program: namespaces of networks, mounts and processes.
//
// Whatever the program makes in there, networks and processes of any kind, ends with it, however it
// ends: the kernel sees to that. Nothing of it can be seen or reached from outside.
#ifndef LOCKSTEP_TESTS_HOSTS_PRIVATE_WORLD_H_
#define LOCKSTEP_TESTS_HOSTS_PRIVATE_WORLD_H_

#include <functional>

#include "absl/status/status.h"

namespace lockstep {

// Calls `run` in a child that is in such a world, as root of it, and returns what it returns (as an
// exit code, 128 + n if signal n killed it). `run` gets the error if there can be no such world:
// who calls is not root and may not make a user namespace, or has no /dev/net/tun; it then runs in
// the world that there is. While the process has one thread.
int RunInPrivateWorld(const std::function<int(const absl::Status&)>& run);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_PRIVATE_WORLD_H_
