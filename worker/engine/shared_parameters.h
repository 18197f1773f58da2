// SharedParameters: a transport whose parameter arena is one memory for all ranks of an epoch,
// as in shared memory, over one that moves everything. For tests.
#ifndef LOCKSTEP_WORKER_ENGINE_SHARED_PARAMETERS_H_
#define LOCKSTEP_WORKER_ENGINE_SHARED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/engine/forwarding_transport.h"

namespace lockstep {

class SharedParameters final : public ForwardingTransport {
 public:
  // `memory`: the same of all ranks, large enough for the arena.
  SharedParameters(std::unique_ptr<Transport> base, std::shared_ptr<std::vector<float>> memory)
      : ForwardingTransport(std::move(base)), memory_(std::move(memory)) {}
  absl::StatusOr<Arena> Allocate(ArenaUse use, DType dtype, std::int64_t elements) override {
    absl::StatusOr<Arena> arena = ForwardingTransport::Allocate(use, dtype, elements);
    if (!arena.ok() || use == ArenaUse::kGradients) return arena;
    arena->data = reinterpret_cast<std::byte*>(memory_->data());
    arena->shared = true;
    return arena;
  }
  absl::Status BroadcastFromOwners(const Arena&, std::span<const Shard>) override {
    return Broadcast({}, 0);  // all wait for all; there is nothing to move
  }
  absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                            std::span<const Shard> shards, std::span<const float> weights,
                            const ConsumeSums& update) override {
    const absl::Status reduced = ReduceToOwners(gradients, shards, weights, update);
    return reduced.ok() ? BroadcastFromOwners(parameters, shards) : reduced;
  }

 private:
  const std::shared_ptr<std::vector<float>> memory_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SHARED_PARAMETERS_H_
