// The optimizers by LibTorch's fused kernels, for parameters in the memory of any device.
//
// The rules are those of worker/optim; results agree within rounding. Work of Update()
// is put on the device's stream; what goes wrong is EndStep()'s error. Used by one
// thread.
#ifndef LOCKSTEP_WORKER_TORCH_TORCH_OPTIMIZER_H_
#define LOCKSTEP_WORKER_TORCH_TORCH_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/torch/torch_device.h"

namespace lockstep {

// As ShardOptimizer::Create(). The state lies on the device.
absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeTorchOptimizer(
    std::shared_ptr<const TorchDevice> device, const OptimizerConfig& config,
    std::vector<GroupRange> ranges, std::int64_t short_begin);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_TORCH_OPTIMIZER_H_
