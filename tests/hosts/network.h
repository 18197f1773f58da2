// Network: hosts as network namespaces of this process, joined by a bridge.
//
//   host's namespace            this process's namespace
//   [ eth0 (TAP) ] --- wire --- [ TAP ]---[ bridge ]---[ TAP ] --- wire --- ...
//
// Each host's link to the bridge is a wire (tests/hosts/wire) that delays and loses frames and can
// be cut. Needs a private world (private_world.h), of which there may be one Network at a time.
// Used by one thread.
#ifndef LOCKSTEP_TESTS_HOSTS_NETWORK_H_
#define LOCKSTEP_TESTS_HOSTS_NETWORK_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/hosts/wire/line.h"
#include "tools/process/child_process.h"

namespace lockstep {

class Network {
 public:
  // `addresses` by name of the host, as "192.0.2.1", all of one /24. Each host has loopback and the
  // interface eth0. Wires log into `directory`. Names are of at most 15 letters.
  // Errors: Internal: what the system refused; those of ChildProcess.
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      const std::string& directory, const std::map<std::string, std::string>& addresses,
      const LineQuality& quality = {});
  ~Network();

  // Starts a program on a host.
  absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::string& host,
                                                      const ChildOptions& options) const;
  absl::StatusOr<RunResult> Run(const std::string& host, const ChildOptions& options,
                                absl::Duration timeout) const;

  // Parts a host from all others, and lets it back. Return when it is so.
  // Errors: Internal: its wire does not do it.
  absl::Status Cut(const std::string& host);
  absl::Status Heal(const std::string& host);

  // Unplugs the wires: what they passed and lost, both directions together.
  struct Traffic {
    std::int64_t passed = 0;
    std::int64_t lost = 0;
  };
  absl::StatusOr<std::map<std::string, Traffic>> Unplug();

 private:
  struct Host {
    int name_space = -1;
    std::string log;
    std::unique_ptr<ChildProcess> wire;
    int cuts = 0;
    int heals = 0;
  };

  Network() = default;

  absl::Status Add(const std::string& directory, const std::string& name,
                   const std::string& address, const LineQuality& quality, int seed);

  std::map<std::string, Host> hosts_;
  int home_ = -1;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_NETWORK_H_
