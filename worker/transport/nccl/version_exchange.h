// VersionExchange: the ranks' versions of gradients to the owners of these, and their sums.
//
// It goes in rounds. In each, every owner has a part, which the other ranks send it their
// versions of, all by one group of sends; the owner adds them up by DeviceMath in rank order, so
// that sums have the bits of every other transport, whatever ways NCCL takes. Versions are
// received in two sets of staging memory: while one is being added up, the other is filled. All
// this is ordered by events alone, unless the arithmetic is the host's.
//
// Used by one thread at a time, and for one run of rounds at a time.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_VERSION_EXCHANGE_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_VERSION_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sharding/shard_plan.h"
#include "worker/device/device_math.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/staging.h"
#include "worker/transport/nccl/traffic.h"
#include "worker/transport/transport.h"

namespace lockstep::nccl_link {

// As errors name it.
inline constexpr absl::string_view kReduction = "sending of gradients to their owners";

class VersionExchange {
 public:
  // What one owner gets in a round; may be empty.
  struct Part {
    Arena gradients;
    Shard elements;

    std::int64_t bytes() const { return elements.elements() * ElementBytes(gradients.dtype); }
    std::byte* data() const { return gradients.at(elements.begin); }
  };

  // They must outlive it; what it moves is added to `traffic`. The arithmetic is on the device's
  // stream for it, or on the host.
  static absl::StatusOr<std::unique_ptr<VersionExchange>> Create(
      Device* device, Communicator* communicator, Staging* staging, Traffic* traffic,
      DeviceMath* math, int rank, int world_size);

  // Before rounds from 0 on, in which parts have at most `part_bytes`; nothing is under way.
  // Returns `more_bytes` of memory beside.
  absl::StatusOr<std::byte*> Begin(std::int64_t part_bytes, std::int64_t more_bytes);
  // Puts a round's sends on the stream of moves, behind the last use of its set. `parts` and
  // `weights` by rank; ranks of weight 0 send nothing.
  absl::Status Send(std::int64_t round, std::span<const Part> parts,
                    std::span<const float> weights);
  // The sums of this rank's part of a round that was sent.
  absl::Status AddUp(std::int64_t round, const Part& mine, std::span<const float> weights,
                     float* sums);
  // The round's set is free once the arithmetic so far is done.
  absl::Status Free(std::int64_t round);
  // Before a round is put on the device: until not many are there.
  absl::Status AwaitTurn(std::int64_t round);

 private:
  static constexpr int kSets = 2;

  VersionExchange(Device* device, Communicator* communicator, Staging* staging, Traffic* traffic,
                  DeviceMath* math, int rank, int world_size)
      : device_(*device),
        communicator_(*communicator),
        staging_(*staging),
        traffic_(*traffic),
        math_(*math),
        rank_(rank),
        world_size_(world_size) {}

  // Where this rank has the version of another of its part; its own is read where it lies.
  std::byte* Version(std::int64_t round, int from) const;

  Device& device_;
  Communicator& communicator_;
  Staging& staging_;
  Traffic& traffic_;
  DeviceMath& math_;
  const int rank_;
  const int world_size_;
  Event received_[kSets];
  Event free_[kMaxUnderWay];  // by round
  // kSets times one of each other rank.
  std::byte* versions_ = nullptr;
  std::int64_t version_bytes_ = 0;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_VERSION_EXCHANGE_H_
