// TorchWorld: the ranks of one job as threads of a test, each with its own module.
//
// Everything is real but the coordinator: a ManualLink proposes the one epoch.
#ifndef LOCKSTEP_TESTS_PARITY_TORCH_WORLD_H_
#define LOCKSTEP_TESTS_PARITY_TORCH_WORLD_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "common/policy/sync_policy.h"
#include "worker/engine/engine.h"
#include "worker/optim/optimizer.h"
#include "worker/transport/transport.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

struct TorchWorldOptions {
  OptimizerConfig optimizer;
  SyncPolicy policy;
  std::shared_ptr<TransportFactory> transports;
  // Where the memory of `transports` is taken to be; steps are made there by TorchMath
  // if that is not the CPU.
  c10::Device device = c10::kCPU;
};

// Runs `body` on each rank, with `modules[rank]` joined; then all leave, so that
// the modules own what training made of them. Returns the first error by rank.
absl::Status TrainTogether(const TorchWorldOptions& options,
                           const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                           const std::function<absl::Status(int rank, Engine& engine)>& body);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_TORCH_WORLD_H_
