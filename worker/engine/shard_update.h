// ShardUpdate: the part of a step in which owners sum gradients, update their shards
// and spread them, once the ranks have agreed. Whether the step is taken, and what is
// due afterwards, is decided elsewhere.
//
// Of one epoch. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_
#define LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/core/agreement.h"
#include "worker/device/device_math.h"
#include "worker/engine/block_arenas.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

class ShardUpdate {
 public:
  // `blocks`: by the plan's. `optimizer` is `math`'s, and `math` is of the memory of the
  // blocks. All outlive this.
  ShardUpdate(DeviceMath* math, ShardOptimizer* optimizer, Transport* transport,
              std::span<const BlockArenas> blocks);

  // Collective. The norm of the averaged gradient, unscaled, before it was clipped;
  // nothing if the step does not ask for it.
  // Errors: as Transport's, and what `math` or `optimizer` say. Parameters may then be
  //   of two steps, each element of one.
  absl::StatusOr<std::optional<double>> Apply(const Agreement& agreement);

 private:
  // Owners update while they sum, and nothing is written in between.
  absl::Status InOnePass(const Agreement& agreement);
  // The norm takes all sums, which are kept until it is known. Returns it.
  absl::StatusOr<double> Clipped(const Agreement& agreement);
  // Sums gradients to their owners, keeps this rank's sums and returns the squared norm
  // of those of all ranks.
  absl::StatusOr<double> ReduceAndKeep(const Agreement& agreement);
  // For the sums of this rank's part of a block: where its own gradients were, or, if
  // those are of a short type, apart.
  absl::StatusOr<std::span<float>> RoomForSums(std::size_t block);
  const Shard& OwnedOf(const BlockArenas& block) const { return block.shards[transport_->rank()]; }

  DeviceMath* const math_;
  ShardOptimizer* const optimizer_;
  Transport* const transport_;
  const std::span<const BlockArenas> blocks_;
  std::map<std::size_t, std::shared_ptr<float[]>> short_sums_;  // by block
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SHARD_UPDATE_H_
