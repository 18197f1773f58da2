// Named tensors as contiguous memory: TensorAccess over LibTorch's tensors.
//
// A dense tensor in row-major order on the CPU, or on the device of the arenas, is viewed
// where it is. Any other is staged: copied to contiguous memory of the CPU in the order
// of its indices, and copied back by WriteBack(). So a view's bytes do not depend on a
// rank's strides.
// An expanded tensor is staged in its full shape; WriteBack() refuses values that
// differ where it has one element only. Of tensors that overlap in memory, views of
// one table, the first is viewed and the others are staged; WriteBack() refuses if
// they were given values that one memory cannot hold.
#ifndef LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_
#define LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_

#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "common/manifest/manifest.h"
#include "worker/engine/model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {

// The manifest's words for a tensor; without type and shape if it holds no plain
// values now (undefined, meta, not initialised, sparse, an element type without a
// word).
TensorSpec SpecOf(const NamedTensor& named);

// The same, for one that must hold plain values. `kind`: "parameter" or "buffer".
// Errors: InvalidArgument: it does not, named, with what to do.
absl::StatusOr<TensorSpec> DescribeTensor(absl::string_view kind, const NamedTensor& named);

// Visits tensors of a module as they are now; whether all were visited.
using TensorWalk = std::function<bool(NamedTensors::Visit)>;

// The tensors of `walk` whose names `selects`, in order; one that is there under a
// second name appears once, under its first. Writes are as in-place ones without
// gradient: requires_grad and grad_fn stay, and a graph that saved a tensor before
// it was written back refuses to go backward through it.
// `device`: what transports move in place besides the CPU's memory.
// Renew() walks again. The access does not keep tensors alive: it is used while
// what `walk` visits does.
// Errors: InvalidArgument: as DescribeTensor(); or elements of one tensor overlap
//   otherwise than by expand(), as in a sliding window.
absl::StatusOr<std::unique_ptr<TensorAccess>> AccessTensors(
    absl::string_view kind, TensorWalk walk,
    absl::FunctionRef<bool(absl::string_view name)> selects, c10::Device device = c10::kCPU);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_
