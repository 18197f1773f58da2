// Where tensors lie, and tensors where memory lies. May throw what LibTorch throws.
#ifndef LOCKSTEP_WORKER_TORCH_PLACEMENT_H_
#define LOCKSTEP_WORKER_TORCH_PLACEMENT_H_

#include "ATen/core/Tensor.h"
#include "ATen/ops/from_blob.h"
#include "c10/core/Device.h"

namespace lockstep {

// Whether `tensor` lies on `device`, on any of its type if that has no index.
inline bool LiesOn(const at::Tensor& tensor, c10::Device device) {
  return device.has_index() && !device.is_cpu() ? tensor.device() == device
                                                : tensor.device().type() == device.type();
}

// Memory of `device`, which has an index if there are several of its type, as a
// contiguous tensor, which does not own it.
inline at::Tensor TensorAt(void* data, at::IntArrayRef sizes, c10::ScalarType type,
                           c10::Device device) {
  return at::for_blob(data, sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_PLACEMENT_H_
