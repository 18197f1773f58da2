// EarlyReduction: gradients go to their owners while backward still makes them.
//
// Training threads say what is ready, by which is meant: when their streams have come to where
// they are now. The communication thread runs the reduction, in turns: the ranks agree on how
// many of the slices (worker/transport/begun_reduction.h), in their order, the devices of all
// have made, and these travel. Where several owners' slices are due, each round of the exchange
// has one of each, so that a network that is slower than backward is used by all owners at once.
// Nothing is put on the device that would wait there for backward, of this rank or of another.
//
// What each function may be called by is said there.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_EARLY_REDUCTION_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_EARLY_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "worker/device/device_math.h"
#include "worker/transport/begun_reduction.h"
#include "worker/transport/nccl/communicator.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/version_exchange.h"
#include "worker/transport/ready_ranges.h"
#include "worker/transport/transport.h"

namespace lockstep::nccl_link {

class EarlyReduction {
 public:
  // The smallest of all ranks' numbers. Errors: those of the ranks' meeting.
  using Smallest = std::function<absl::StatusOr<std::int64_t>(std::int64_t mine)>;

  // They must outlive it. `slice_bytes`: of what a rank sends at once; equal on all ranks.
  EarlyReduction(Device* device, Communicator* communicator, VersionExchange* versions,
                 DeviceMath* math, int rank, int world_size, std::int64_t slice_bytes)
      : device_(*device),
        communicator_(*communicator),
        versions_(*versions),
        math_(*math),
        rank_(rank),
        world_size_(world_size),
        slice_bytes_(slice_bytes),
        begun_(rank) {}

  // The calling thread, while Run() does not.
  void Begin(std::vector<BegunReduction::Part> parts);
  BegunReduction& begun() { return begun_; }
  const BegunReduction& begun() const { return begun_; }

  // The calling thread, also while Run() does.
  // Errors: FailedPrecondition: not all elements were said to be ready. Those of MarkReady().
  absl::Status CheckAllReady() const;

  // Any thread: these are ready once the caller's stream has come to where it is now. Errors:
  // Internal.
  absl::Status MarkReady(const Arena& gradients, std::int64_t begin, std::int64_t end);

  // The communication thread. `weights` by rank. Returns when all sums are made. Errors: as of
  // Communicator and `smallest`, ResourceExhausted.
  absl::Status Run(std::vector<float> weights, const Smallest& smallest);

 private:
  // Ready when the event is reached.
  struct Announced {
    std::size_t part = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Event event;
  };

  absl::StatusOr<Event> RecordCaller();
  // Forgets them, but for the events.
  void Recycle(std::deque<Announced>& announced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until this rank's device has made a slice more than `sent`: how many it has made.
  absl::StatusOr<std::int64_t> AwaitSlices(std::int64_t sent);
  absl::Status TakeInWhatIsReached();
  absl::Status Move(std::span<const BegunReduction::Slice> slices);

  Device& device_;
  Communicator& communicator_;
  VersionExchange& versions_;
  DeviceMath& math_;
  const int rank_;
  const int world_size_;
  const std::int64_t slice_bytes_;
  BegunReduction begun_;

  // Of Run().
  std::deque<Announced> coming_;
  std::vector<ReadyRanges> reached_;  // by part
  std::int64_t made_ = 0;             // slices, from the first on
  std::int64_t round_ = 0;            // of the exchange

  mutable Mutex mu_;
  std::vector<ReadyRanges> said_ ABSL_GUARDED_BY(mu_);  // by part
  std::deque<Announced> announced_ ABSL_GUARDED_BY(mu_);
  std::vector<Event> spare_ ABSL_GUARDED_BY(mu_);
  absl::Status unmarked_ ABSL_GUARDED_BY(mu_);  // why something that was said is not known
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_EARLY_REDUCTION_H_
