// TorchDevice: a device of LibTorch, memory on it, and the stream that work for it is
// put on.
//
// LibTorch has a current stream for each device and thread. Work of training code goes
// to that; what is run here goes to the stream of UseStream(), and the current one is as
// before when it returns. The stream is set through c10's interface that all devices
// have, so nothing of CUDA is linked. Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_TORCH_DEVICE_H_
#define LOCKSTEP_WORKER_TORCH_TORCH_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "c10/core/InferenceMode.h"
#include "c10/core/Stream.h"
#include "c10/core/StreamGuard.h"
#include "common/manifest/dtype.h"
#include "worker/torch/guard.h"
#include "worker/torch/scalar_types.h"

namespace lockstep {

// What is worked on at a time where it takes memory: long enough for a GPU to be busy,
// and short enough to stay in its second-level cache.
inline constexpr std::int64_t kTileElements = std::int64_t{1} << 22;

class TorchDevice {
 public:
  // Without an index it is the thread's current device of that type.
  // Errors: FailedPrecondition: this program is linked without LibTorch's library for
  //   such devices, or there is none; Internal: what LibTorch says.
  static absl::StatusOr<std::shared_ptr<TorchDevice>> Create(c10::Device device);

  // A cudaStream_t that was made by cudaStreamCreate...(), or null for the default
  // one. No meaning on the CPU, where work is done at once.
  void UseStream(void* stream);

  // Runs `fn`, which returns absl::Status or absl::StatusOr, with work put on the stream
  // and without autograd. Errors: as GuardTorch().
  template <typename Fn>
  auto Run(absl::string_view what, Fn&& fn) const -> decltype(fn()) {
    return GuardTorch(what, [&] {
      const c10::InferenceMode no_autograd;
      const c10::OptionalStreamGuard on_stream(stream_);
      return std::forward<Fn>(fn)();
    });
  }

  // Waits for all work of the device, of whatever stream. May throw what LibTorch throws.
  void Wait() const;

  // `elements` of memory of this device as a flat tensor, which does not own it. What is
  // const must not be written to. May throw.
  at::Tensor View(const void* data, std::int64_t elements, c10::ScalarType type) const;

  // Floats of 0. Errors: ResourceExhausted: there is no memory for them.
  absl::StatusOr<at::Tensor> Zeros(std::int64_t elements) const;

  c10::Device device() const { return device_; }

 private:
  explicit TorchDevice(c10::Device device) : device_(device) {}

  const c10::Device device_;
  std::optional<c10::Stream> stream_;  // nothing: the current one
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_TORCH_DEVICE_H_
