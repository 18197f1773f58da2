// ShardCopy: one rank's copy of a shard: its optimizer state, its parameters, and in a step the
// sums of gradients.
//
// The owner's copy is made of the arenas; a buddy's has parameters of its own, since
// those in the arena are the owner's to change. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_SHARD_COPY_H_
#define LOCKSTEP_WORKER_ENGINE_SHARD_COPY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/sharding/shard_plan.h"
#include "worker/device/device_math.h"
#include "worker/engine/block_arenas.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

struct ShardCopy {
  // What of it lies in one block of the plan.
  struct Part {
    Shard elements;          // within the block
    std::int64_t place = 0;  // where they begin in the shard
    std::byte* parameters = nullptr;
    std::span<float> sums;   // none before RoomForSums()
  };

  int owner = 0;   // the rank
  Shard elements;  // of the flat space
  std::unique_ptr<ShardOptimizer> optimizer;
  std::vector<Part> parts;  // by block; may be empty
  std::vector<std::shared_ptr<float[]>> memory;  // what is not in the arenas
};

// Gives a copy its parts, with parameters in the arenas if `in_place`, else in memory of
// its own. Errors: ResourceExhausted: there is no memory.
absl::Status PlaceCopy(const ShardPlan& plan, std::span<const BlockArenas> blocks, bool in_place,
                       DeviceMath* math, ShardCopy& copy);

// Makes room for the sums of each part: where this rank's own gradients are, or, for short
// types, apart. Errors: the same.
absl::Status RoomForSums(std::span<const BlockArenas> blocks, DeviceMath* math, ShardCopy& copy);

// Takes the parameters from the arenas into the copy, which has its own.
absl::Status TakeParameters(std::span<const BlockArenas> blocks, DeviceMath* math,
                            ShardCopy& copy);

// The step of all elements, by their sums times `factor`. Errors: as
//   ShardOptimizer::EndStep().
absl::Status UpdateCopy(ShardCopy& copy, std::span<const BlockArenas> blocks, float factor);

// All of some elements of the flat space that moves with them: state and parameters, in the
// same order and with the same names and sizes for every copy. `copy`: null: without data.
std::vector<TensorView> ViewsOf(const ShardPlan& plan, const OptimizerConfig& optimizer,
                                const Shard& elements, ShardCopy* copy);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SHARD_COPY_H_
