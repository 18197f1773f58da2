// The transport for ranks on GPUs, on one host or several: NCCL, one GPU for each rank.
//
// Ranks agree on the host, over TCP (worker/transport/star): who is missing or gone is known
// by name, which NCCL cannot say. NCCL only moves bytes whose size all have agreed on; sums
// are made here, in rank order, so that results are bit-equal to the other transports'.
// An operation is over when it returns: nothing is under way, also after an error
// (docs/decisions/0018-nccl-moves-bytes.md).
//
// Arenas lie in the GPU's memory, and what ReduceToOwners() and UpdateShards() hand to their
// ConsumeSums as well: the host must not follow these pointers. It puts its work on the stream of
// the DeviceMath that it was given, and the transport waits for that. Tensors of an
// Exchange() may lie in the memory of any GPU or of the host, on each rank as it likes.
//
// A reduction that was begun is carried out by a communication thread, slice by slice as the
// devices of all ranks have made it. What a thread says to be ready is, for the transport, what
// that thread's stream has made when it has come so far.
//
// After an error the communicator is aborted at once. Where NCCL does not do that in time, or a
// call of it or of CUDA does not come back, the process ends: a GPU that may still write
// somewhere can be neither used nor left.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/device/device_math.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Logs the message, and ends the process at once, with exit code 70 and without clean-up.
void EndProcess(absl::string_view message);

struct NcclOptions {
  NcclApi api;
  // Of this process, as CUDA counts. Every call makes it the current one of its thread.
  int device = 0;
  std::string interface = "lo";   // whose address ranks meet at; NCCL chooses its own
  // For memory of `device`; not null. One transport at a time. From BeginReduction() to the next
  // collective call it is used by the transport's communication thread alone.
  std::shared_ptr<DeviceMath> math;
  // The stream of `device` that gradients and tensors are made on when an operation, or
  // GradientsReady(), is called; called on the calling thread; null: CUDA's default stream.
  std::function<cudaStream_t()> caller_stream = nullptr;
  // Of what a rank gets from all others at once; equal on all ranks. Up to three times that is
  // kept beside the arenas, and once on the host; and for reductions that were begun, the sums of
  // this rank's shards of short types, in float.
  std::int64_t piece_bytes = 64 << 20;
  // Arenas, and what sums are made in, are memory that the host reaches as well, so that
  // `math` can be a HostMath: slower, for tests.
  bool managed_arenas = false;
  // How long NCCL may take to abort, and any call of NCCL or CUDA to come back once its operation
  // is over, before the process ends.
  absl::Duration abort_timeout = absl::Seconds(10);
  std::function<void(absl::string_view message)> end_process = EndProcess;
};

// A multiple of 16, from 16 to 1 GiB.
inline bool IsNcclPieceSize(std::int64_t bytes) {
  return bytes >= 16 && bytes <= std::int64_t{1} << 30 && bytes % 16 == 0;
}

// Thread-safe.
class NcclFactory final : public TransportFactory {
 public:
  explicit NcclFactory(NcclOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "nccl"; }
  // Also FailedPrecondition: ranks have different versions of NCCL, or there is no such GPU;
  // InvalidArgument: pieces are not as IsNcclPieceSize() says, or ranks disagree on them.
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;

 private:
  const NcclOptions options_;
  // Of its transports the last one whose stream `math` was given: one that goes later than it
  // came to be used no more leaves it alone.
  const std::shared_ptr<std::atomic<const Transport*>> math_user_ =
      std::make_shared<std::atomic<const Transport*>>(nullptr);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_NCCL_TRANSPORT_H_
