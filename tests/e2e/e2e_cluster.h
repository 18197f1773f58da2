// A LocalCluster for tests: a fresh folder, a client, and waits for conditions.
#ifndef LOCKSTEP_TESTS_E2E_E2E_CLUSTER_H_
#define LOCKSTEP_TESTS_E2E_E2E_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "lockstep/v1/job.pb.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {

inline constexpr absl::Duration kPatience = absl::Seconds(60);

// A new folder under the test's temporary one.
std::string MakeFolder();

// With a coordinator that serves.
class E2eCluster {
 public:
  E2eCluster();

  LocalCluster& processes() { return *processes_; }
  Client& client() { return *client_; }
  void ConnectAgain();

  // A job for workers worker-0 ... worker-<n-1>, with short timeouts.
  v1::JobSpec SpecFor(const std::string& job, int workers) const;
  void CreateJob(const v1::JobSpec& spec);

  // What a trainer of a small model on MNIST is given beside its names; of a flag that is in
  // `flags` that value.
  static std::vector<std::string> TrainerFlags(const std::vector<std::string>& flags = {});
  // A worker with TrainerFlags().
  void StartWorker(int index, const std::string& job, const std::vector<std::string>& flags = {});

  v1::Job GetJob(const std::string& job);
  // Waits until the job is as `condition` says, or fails the test.
  void AwaitJob(const std::string& job, const std::string& what,
                const std::function<bool(const v1::Job&)>& condition);
  // Waits until the worker ended; its log with it.
  struct Ended {
    ChildExit exit;
    std::string log;
  };
  Ended AwaitWorker(int index);
  nlohmann::json Report(int index);

 private:
  std::unique_ptr<LocalCluster> processes_;
  std::unique_ptr<Client> client_;
};

// The ids of live processes that were started with `variable` in their environment.
std::vector<int> ProcessesWith(const std::string& variable);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_E2E_E2E_CLUSTER_H_
