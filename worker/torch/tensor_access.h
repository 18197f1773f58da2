// Named tensors as contiguous memory: TensorAccess over LibTorch's tensors.
//
// A dense CPU tensor in row-major order is viewed where it is. Any other layout
// is staged: copied to contiguous memory, and copied back by WriteBack().
#ifndef LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_
#define LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "worker/engine/model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {

// The manifest's words for a tensor that can take part. `kind`: "parameter" or
// "buffer". Errors: InvalidArgument: it cannot (undefined, meta, not
//   initialised, sparse, an element type without a word), named, with what to do.
absl::StatusOr<TensorSpec> DescribeTensor(absl::string_view kind, const NamedTensor& named);

// All `tensors` in order; one that is there under a second name appears once,
// under its first. Writes are seen by autograd: a graph that saved a tensor
// before it was written back refuses to go backward through it.
// Errors: InvalidArgument: as DescribeTensor(); or elements of one tensor share
//   memory (expanded), so that it could not take different values.
absl::StatusOr<std::unique_ptr<TensorAccess>> AccessTensors(absl::string_view kind,
                                                            std::vector<NamedTensor> tensors);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_TENSOR_ACCESS_H_
