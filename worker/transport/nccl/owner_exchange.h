// OwnerExchange: gradients to the owners of their shards, and what owners make of them to all.
//
// NCCL only moves bytes. Shards are cut into pieces: while one is added up and updated, the next
// travels, and what is updated spreads.
//
//   moves:       T0  T1      S0  T2      S1  T3 ..    T: gradients of a piece to owners
//   arithmetic:      sum 0       sum 1       ..       S: parameters of a piece from owners
//
// Pieces are ordered by events; the host waits for the end of an operation, and for a piece only
// to put no more than kMaxUnderWay on the device, or to add it up if the arithmetic is its own.
//
// Used by one thread at a time.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/shard_plan.h"
#include "worker/combine/combine.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/staging.h"
#include "worker/transport/nccl/traffic.h"
#include "worker/transport/nccl/version_exchange.h"
#include "worker/transport/transport.h"

namespace lockstep::nccl_link {

class OwnerExchange {
 public:
  // They must outlive it; what it moves is added to `traffic`.
  static absl::StatusOr<std::unique_ptr<OwnerExchange>> Create(
      Device* device, Communicator* communicator, const Staging* staging, Traffic* traffic,
      VersionExchange* versions, int rank, int world_size);

  // Hands the sums of this rank's shard of `gradients` to `consume`; where there are
  // `parameters`, what it wrote to them spreads. When it returns nothing is under way.
  absl::Status Reduce(const Arena& gradients, const Arena* parameters,
                      std::span<const Shard> shards, std::span<const float> weights,
                      const ConsumeSums& consume);
  // The same where those sums are made already.
  absl::Status HandOver(std::span<const float> sums, const Arena* parameters,
                        std::span<const Shard> shards, const ConsumeSums& consume);
  // Every shard from its owner to all.
  absl::Status Spread(const Arena& parameters, std::span<const Shard> shards);

 private:
  // How shards are cut: as many pieces of each, of equal numbers of elements.
  struct Pieces {
    std::span<const Shard> shards;
    std::int64_t elements = 0;
    std::int64_t count = 0;

    Shard Part(std::int64_t piece, int owner) const;
  };

  OwnerExchange(Device* device, Communicator* communicator, const Staging* staging,
                Traffic* traffic, VersionExchange* versions, int rank, int world_size)
      : device_(*device),
        communicator_(*communicator),
        staging_(*staging),
        traffic_(*traffic),
        versions_(*versions),
        rank_(rank),
        world_size_(world_size) {}

  Pieces Cut(std::span<const Shard> shards, std::int64_t element_bytes) const;
  absl::Status Send(const Pieces& pieces, std::int64_t piece, const Arena& gradients,
                    std::span<const float> weights);
  // Hands the sums of a piece of this rank's shard over, and lets what comes of them spread.
  absl::Status Consume(const Pieces& pieces, std::int64_t piece, const float* sums,
                       const Arena* parameters, const ConsumeSums& consume);
  absl::Status SpreadParts(const Arena& parameters, std::span<const Shard> parts);

  Device& device_;
  Communicator& communicator_;
  const Staging& staging_;
  Traffic& traffic_;
  VersionExchange& versions_;
  const int rank_;
  const int world_size_;
  Event updated_;
  Event spread_[kMaxUnderWay];  // by piece
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_OWNER_EXCHANGE_H_
