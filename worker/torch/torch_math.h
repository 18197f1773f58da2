// TorchMath: DeviceMath by LibTorch's operators, for arenas in the memory of any device
// that LibTorch computes on. Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_TORCH_MATH_H_
#define LOCKSTEP_WORKER_TORCH_TORCH_MATH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "worker/device/device_math.h"

namespace lockstep {

// Sums of ranks have the bits of HostMath's, unless they are no numbers: then they are
// none here. Optimizers are LibTorch's fused ones; their results are those of
// HostMath's within rounding.
// Errors: as TorchDevice::Create(). Of what it makes: also Internal: what LibTorch says.
absl::StatusOr<std::unique_ptr<DeviceMath>> MakeTorchMath(c10::Device device);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_TORCH_MATH_H_
