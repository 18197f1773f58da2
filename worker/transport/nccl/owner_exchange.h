// OwnerExchange: gradients to the owners of their shards, and what owners make of them to all.
//
// NCCL moves bytes; the owner adds them up by DeviceMath in rank order, so that sums have the
// bits of every other transport, whatever ways NCCL takes. Shards are cut into pieces: while
// one is added up and updated, the next travels, and what is updated spreads.
//
//   moves:       T0  T1      S0  T2      S1  T3 ..    T: gradients of a piece to owners
//   arithmetic:      sum 0       sum 1       ..       S: parameters of a piece from owners
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/shard_plan.h"
#include "worker/combine/combine.h"
#include "worker/device/device_math.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/staging.h"
#include "worker/transport/transport.h"

namespace lockstep::nccl_link {

class OwnerExchange {
 public:
  // They must outlive it; what it moves is added to `traffic`. The arithmetic is on the
  // device's stream for it, or on the host.
  static absl::StatusOr<std::unique_ptr<OwnerExchange>> Create(
      Device* device, Communicator* communicator, Staging* staging, TrafficCounters* traffic,
      DeviceMath* math, int rank, int world_size);

  // Hands the sums of this rank's shard of `gradients` to `consume`; where there are
  // `parameters`, what it wrote to them spreads. When it returns nothing is under way.
  absl::Status Reduce(const Arena& gradients, const Arena* parameters,
                      std::span<const Shard> shards, std::span<const float> weights,
                      const ConsumeSums& consume);
  // Every shard from its owner to all.
  absl::Status Spread(const Arena& parameters, std::span<const Shard> shards);

 private:
  // While one is being added up, the other is being received.
  static constexpr int kSets = 2;
  struct Set {
    Event received;
    Event used;  // what came was added up and consumed
  };
  // One call of Reduce().
  struct Reduction;

  OwnerExchange(Device* device, Communicator* communicator, Staging* staging,
                TrafficCounters* traffic, DeviceMath* math, int rank, int world_size)
      : device_(*device),
        communicator_(*communicator),
        staging_(*staging),
        traffic_(*traffic),
        math_(*math),
        rank_(rank),
        world_size_(world_size) {}

  absl::Status Receive(const Reduction& reduction, std::int64_t piece);
  absl::Status AddUp(const Reduction& reduction, std::int64_t piece);
  absl::Status SpreadParts(const Arena& parameters, std::span<const Shard> parts);

  Device& device_;
  Communicator& communicator_;
  Staging& staging_;
  TrafficCounters& traffic_;
  DeviceMath& math_;
  const int rank_;
  const int world_size_;
  Set sets_[kSets];
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_
