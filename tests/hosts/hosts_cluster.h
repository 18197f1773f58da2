// HostsCluster: a coordinator with TLS on one host of a Network, and workers on two others.
//
// Ranks alternate between the hosts "host-a" (w0, w2) and "host-b" (w1, w3): of two ranks that keep
// a shard together, each is on another one. Failures are the test's. Used by one thread.
#ifndef LOCKSTEP_TESTS_HOSTS_HOSTS_CLUSTER_H_
#define LOCKSTEP_TESTS_HOSTS_HOSTS_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/epoch_history.h"
#include "tests/hosts/network.h"
#include "tools/process/child_process.h"

namespace lockstep {

inline constexpr int kWorkers = 4;
inline constexpr char kCoordinatorHost[] = "coordinator";
inline constexpr char kHostA[] = "host-a";
inline constexpr char kHostB[] = "host-b";

// Their addresses, those of docs/two-hosts.md.
const std::map<std::string, std::string>& HostAddresses();

class HostsCluster {
 public:
  // The coordinator serves, and the job has been made with `job_flags` of lockstepctl; all workers
  // will train with `trainer_flags`.
  HostsCluster(const std::vector<std::string>& job_flags, std::vector<std::string> trainer_flags,
               const LineQuality& quality = {});
  ~HostsCluster();

  Network& network() { return *network_; }

  // lockstepctl on the coordinator's host, as an operator: it must end well. What it prints.
  std::string Ctl(std::vector<std::string> arguments);
  // Waits until `condition` holds for what `job status` says, or fails the test.
  void AwaitJob(const std::string& what,
                const std::function<bool(const nlohmann::json&)>& condition);
  void AwaitTraining(int workers);

  void StartWorkers();
  std::string WorkerLog(int index) const;
  // More workers on host B, all under the name of w1 and with these flags for TLS, find no
  // coordinator that speaks with them. By what their logs are called.
  void ExpectTurnedAway(const std::map<std::string, std::vector<std::string>>& strangers);
  // Flags with certificates that another authority made, with this one's authority to check with.
  std::vector<std::string> OtherAuthority();

  // All workers end well, behind the same step and with equal parameters. Their reports, by rank.
  std::vector<nlohmann::json> ExpectEqualEnds();
  // The same, and the steps that they tell of give these parameters, in one process.
  EpochHistory ExpectRightEnd();

 private:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::vector<std::string> TlsFlags(const std::string& name) const;
  void MakeCertificate(const std::string& authority, const std::vector<std::string>& arguments);
  std::vector<std::string> WorkerArguments(int index, const std::vector<std::string>& tls) const;
  void StartCoordinator();

  const std::string directory_;
  const std::vector<std::string> trainer_flags_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_HOSTS_CLUSTER_H_
