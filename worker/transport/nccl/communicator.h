// Communicator: one rank's end of a non-blocking NCCL communicator, from its forming to its
// abort. Nothing here blocks in NCCL: what NCCL has begun is polled for, until the waiter
// gives up.
//
//   formed --error--> the owner calls Abort() --> aborted, or the process ends
//
// After an error only Abort() may be called. It is never destroyed or finalized: NCCL's own
// teardown waits for other ranks without a limit, and must not follow an abort of any of
// them. Used by one thread at a time.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/transport/nccl/device.h"
#include "worker/transport/nccl/device_memory.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/waiter.h"

namespace lockstep::nccl_link {

class Communicator {
 public:
  // The two must outlive it.
  Communicator(Device* device, Waiter* waiter) : device_(*device), waiter_(*waiter) {}

  // Collective; once. Also DeadlineExceeded, and what ends the waiter's waits.
  absl::Status Form(int ranks, int rank, const ncclUniqueId& id);

  // Puts a collective, or a group of them, on the device's stream of moves, and returns when it
  // lies there; `post` makes the calls. Errors: as FromNccl() and Waiter::Until() say.
  using Post = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  absl::Status Put(absl::string_view what, const Post& post);
  absl::Status PutGroup(absl::string_view what, const Post& post);

  // Until `done`, as long as NCCL has no error.
  absl::Status AwaitThat(absl::string_view what, const std::function<absl::StatusOr<bool>()>& done);
  // Until the device has reached the event.
  absl::Status Await(absl::string_view what, const Event& event);
  // Until all of the device's two streams is done.
  absl::Status AwaitAll(absl::string_view what);

  // Faster ways for what lies there, where NCCL has them. A refusal changes nothing.
  absl::Status Register(const DeviceMemory& memory);

  // Ends all that is under way, and waits for the device to be idle; false: within `timeout` it
  // was not, and nothing of this device may be touched any more. Again: nothing happens.
  bool Abort(absl::Duration timeout);

 private:
  // Whether the communicator is through with the last call.
  absl::StatusOr<bool> Ready(absl::string_view what);
  absl::Status AwaitReady(absl::string_view what);

  Device& device_;
  Waiter& waiter_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_COMMUNICATOR_H_
