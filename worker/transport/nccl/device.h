// Device: one GPU as a transport uses it: a stream for what moves, one for arithmetic, so
// that both run at once, and the order among them and the caller's own stream.
//
//   caller's stream ---.
//                       >-- Enter() --> entered() --> moves, arithmetic -- Finish() --> ended()
//   arithmetic  -------'
//
// Nothing here waits. Used by one thread at a time where nothing else is said; Enter() makes the device the current one
// of the thread.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::nccl_link {

class Event {
 public:
  static absl::StatusOr<Event> Create(const NcclApi* api);

  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (api_ != nullptr) api_->EventDestroy(event_);
  }

  bool exists() const { return api_ != nullptr; }

  absl::Status Record(cudaStream_t stream);
  // What follows on the stream waits for what was recorded.
  absl::Status HoldBack(cudaStream_t stream) const;
  // Whether the device is through with what was recorded.
  absl::StatusOr<bool> Reached() const;

 private:
  const NcclApi* api_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// What a device can do with memory.
enum class Reach {
  kUsed,    // kernels use it as it is
  kCopied,  // copies reach it: pinned, or of another device
  kNone,    // the host must hand it over
};

class Device {
 public:
  // `caller_stream` gives the stream that the tensors of an operation are made on. `api` must
  // outlive it. Errors: FailedPrecondition: there is no such device.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const NcclApi* api, int number,
                                                      std::function<cudaStream_t()> caller_stream);
  ~Device();

  const NcclApi& api() const { return api_; }
  int number() const { return number_; }
  cudaStream_t moves() const { return moves_; }
  cudaStream_t arithmetic() const { return arithmetic_; }

  // Both may be called by any thread, also beside others.
  absl::Status MakeCurrent();
  // What the caller's stream of this thread has by now.
  absl::Status RecordCaller(Event& event);

  // Records the end of what the caller's stream and that of arithmetic have, as entered(): what
  // is put on either of ours after that comes behind it. The stream of moves has nothing.
  absl::Status Enter();
  const Event& entered() const { return entered_; }
  // Records the end of all of both streams, as ended().
  absl::Status Finish();
  const Event& ended() const { return ended_; }

  // On the stream of moves; neither is beyond reach, as the copy would wait for the stream.
  absl::Status Copy(std::byte* to, const std::byte* from, std::int64_t bytes);
  absl::Status Zero(std::byte* memory, std::int64_t bytes);

  absl::StatusOr<Reach> ReachOf(const std::byte* memory);

 private:
  Device(const NcclApi* api, int number, std::function<cudaStream_t()> caller_stream)
      : api_(*api), number_(number), caller_stream_(std::move(caller_stream)) {}

  const NcclApi& api_;
  const int number_;
  const std::function<cudaStream_t()> caller_stream_;
  cudaStream_t moves_ = nullptr;
  cudaStream_t arithmetic_ = nullptr;
  Event called_;    // on the caller's stream
  Event entered_;   // on that of arithmetic, behind it
  Event computed_;  // on the stream of arithmetic
  Event ended_;     // on that of moves
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_DEVICE_H_
