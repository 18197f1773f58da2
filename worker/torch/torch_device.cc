#include "worker/torch/torch_device.h"

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "worker/torch/placement.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<TorchDevice>> TorchDevice::Create(c10::Device device) {
  return GuardTorch("finding the device", [&]() -> absl::StatusOr<std::shared_ptr<TorchDevice>> {
    if (device.is_cpu()) return std::shared_ptr<TorchDevice>(new TorchDevice(c10::kCPU));
    const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
    if (!c10::impl::hasDeviceGuardImpl(device.type())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "there is no device '", device.str(), "': this program is without LibTorch's "
          "library for ", type, "; link it, or train on the CPU"));
    }
    const c10::impl::VirtualGuardImpl guard(device.type());
    const int count = guard.deviceCount();
    if (device.index() >= count || count == 0) {
      return absl::FailedPreconditionError(absl::StrCat("there is no device '", device.str(),
                                                        "'; LibTorch finds ", count, " of ", type));
    }
    return std::shared_ptr<TorchDevice>(
        new TorchDevice(device.has_index() ? device : guard.getDevice()));
  });
}

void TorchDevice::UseStream(void* stream) {
  if (device_.is_cpu()) return;
  // The number of a stream that LibTorch did not make is its address, that of the
  // default one is 0: c10::cuda::getStreamFromExternal() gives the same.
  stream_ = c10::Stream(c10::Stream::UNSAFE, device_,
                        static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(stream)));
}

void TorchDevice::Wait() const {
  if (device_.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
}

at::Tensor TorchDevice::View(const void* data, std::int64_t elements, c10::ScalarType type) const {
  return TensorAt(const_cast<void*>(data), {elements}, type, device_);
}

absl::StatusOr<at::Tensor> TorchDevice::Zeros(std::int64_t elements) const {
  absl::StatusOr<at::Tensor> zeros =
      Run("allocating memory", [&]() -> absl::StatusOr<at::Tensor> {
        return at::zeros({elements}, at::TensorOptions().dtype(at::kFloat).device(device_));
      });
  if (zeros.ok()) return zeros;
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory for ", elements,
                                                   " floats on ", device_.str(), ": ",
                                                   zeros.status().message()));
}

}  // namespace lockstep
