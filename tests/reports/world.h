// World: the ranks of one job as threads of a test, each with its own module and
// its own session.
//
// Everything is real but the coordinator: a ManualLink proposes the one epoch, so a
// test may also give ranks what a coordinator would not let pass.
#ifndef LOCKSTEP_TESTS_REPORTS_WORLD_H_
#define LOCKSTEP_TESTS_REPORTS_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/policy/sync_policy.h"
#include "worker/optim/optimizer.h"
#include "worker/session/session.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct World {
  SyncPolicy policy;
  std::map<int, SyncPolicy> policy_of;  // ranks that are given another one
  OptimizerConfig optimizer = Sgd{.lr = 0.5};
  std::shared_ptr<TransportFactory> transports;  // null: in-process
  absl::Duration operation_timeout = absl::Seconds(60);
};

// Runs `body` on each rank, joined with `modules[rank]`; then all leave. By rank:
// why it could not join, or what `body` returned. Workers are w0, w1, ...
std::vector<absl::Status> RunModules(
    const World& world, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const std::function<absl::Status(Session& session)>& body);

// The same with the rank's own net as an argument of `body`.
template <typename Net, typename Body>
std::vector<absl::Status> RunRanks(const World& world,
                                   const std::vector<std::shared_ptr<Net>>& nets,
                                   const Body& body) {
  return RunModules(world, {nets.begin(), nets.end()}, [&](Session& session) -> absl::Status {
    return body(session, *nets[session.rank()]);
  });
}

// For bodies that no rank may fail in: the first error by rank.
absl::Status FirstError(const std::vector<absl::Status>& statuses);

template <typename Net, typename Body>
absl::Status RunAll(const World& world, const std::vector<std::shared_ptr<Net>>& nets,
                    const Body& body) {
  return FirstError(RunRanks(world, nets, body));
}

// Nothing is due at any time, not even at start: only what a test calls for.
SyncPolicy OnCommandOnly();

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_REPORTS_WORLD_H_
