// SoloTransport: the transport of a world of one rank. Nothing moves.
//
// Used by one thread; Abort() may be called from any.
#ifndef LOCKSTEP_WORKER_ENGINE_SOLO_TRANSPORT_H_
#define LOCKSTEP_WORKER_ENGINE_SOLO_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/transport.h"

namespace lockstep {

class SoloTransport final : public Transport {
 public:
  explicit SoloTransport(std::string worker) : members_({std::move(worker)}) {}

  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  absl::Status Exchange(std::span<const Transfer> transfers) override;
  absl::Status Pass(std::span<const Passage> passages) override;
  absl::StatusOr<Arena> Allocate(ArenaUse use, DType dtype, std::int64_t elements) override;
  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              std::span<const float> weights,
                              const ConsumeSums& consume) override;
  absl::Status BroadcastFromOwners(const Arena& parameters,
                                   std::span<const Shard> shards) override;
  absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                            std::span<const Shard> shards, std::span<const float> weights,
                            const ConsumeSums& update) override;
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override;
  void Abort(absl::Status why) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status Alive() ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<std::string> members_;
  std::vector<HostMemory> memory_;  // of the arenas
  Mutex mu_;
  absl::Status dead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SOLO_TRANSPORT_H_
