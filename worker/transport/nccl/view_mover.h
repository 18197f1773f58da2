// ViewMover: lists of tensors among all ranks, wherever on each rank they lie.
//
// Lists are cut into pieces (worker/transport/pieces.h) alike on all ranks, so that NCCL
// sees the same sizes everywhere. A large tensor that the GPU can use is moved in place; the
// others are packed into staging memory, those that it cannot copy by the host. Reductions are
// made on the host, in rank order, with the arithmetic of all transports. Used by one thread at
// a time.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_VIEW_MOVER_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_VIEW_MOVER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/reduction.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/staging.h"
#include "worker/transport/nccl/traffic.h"
#include "worker/transport/pieces.h"
#include "worker/transport/tensor_view.h"
#include "worker/transport/transport.h"

namespace lockstep::nccl_link {

class ViewMover {
 public:
  // They must outlive it; what it moves is added to `traffic`.
  ViewMover(Device* device, Communicator* communicator, Staging* staging, Traffic* traffic,
            int rank, int world_size)
      : device_(*device),
        communicator_(*communicator),
        staging_(*staging),
        traffic_(*traffic),
        rank_(rank),
        world_size_(world_size) {}

  // When they return nothing is under way any more.
  absl::Status Broadcast(std::span<const TensorView> views, int root);
  absl::Status AllReduce(std::span<const TensorView> views, ReduceOp op,
                         std::span<const double> weights);

 private:
  // Fragments of a piece that are copied at once.
  struct Run {
    Reach reach = Reach::kNone;
    std::span<const Fragment> fragments;  // one, or all that the host hands over in a row

    std::int64_t begin() const { return fragments.front().offset; }
    std::int64_t bytes() const {
      return fragments.back().offset + fragments.back().bytes - begin();
    }
  };
  absl::StatusOr<std::vector<Run>> RunsOf(const PieceCutter& piece);
  // Between the tensors and a piece on the device; `host` has as much pinned memory, or null
  // where nothing is beyond reach.
  absl::Status Pack(std::span<const Run> runs, std::byte* device, std::byte* host);
  absl::Status Unpack(std::span<const Run> runs, const std::byte* device, std::byte* host);
  absl::Status UnpackFromHost(std::span<const Run> runs, const std::byte* host);

  Device& device_;
  Communicator& communicator_;
  Staging& staging_;
  Traffic& traffic_;
  const int rank_;
  const int world_size_;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_VIEW_MOVER_H_
