// NamedTensors: what a module consists of at this moment, by name.
//
// The seam between the two kinds of LibTorch modules and ModuleModel. Tensors are
// handles: what is done to one is seen by the module. Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_
#define LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace lockstep {

struct NamedTensor {
  std::string name;  // full dotted name
  at::Tensor tensor;
};

// In the module's order, looked up at each call. A tensor that the module has
// under two names is listed under both. May throw what LibTorch throws.
class NamedTensors {
 public:
  virtual ~NamedTensors() = default;
  virtual std::vector<NamedTensor> Parameters() const = 0;
  virtual std::vector<NamedTensor> Buffers() const = 0;
};

// `module` outlives the result. Registered tensors that are not defined (a bias
// that is switched off) are left out, as LibTorch does.
std::unique_ptr<NamedTensors> TensorsOf(torch::nn::Module& module);
// Shares the module's attributes.
std::unique_ptr<NamedTensors> TensorsOf(torch::jit::Module& module);

// A second module next to the one that is trained.
struct Attachment {
  std::string prefix;
  std::unique_ptr<NamedTensors> tensors;
};

// `own`, with all tensors of `attached` behind its buffers: of each its parameters,
// then its buffers, named PREFIX.NAME.
// Errors: InvalidArgument: a prefix that is not one or several dotted components of
//   printable text, a name that is there already, or a tensor that shares memory
//   with a trainable parameter of `own`; named.
absl::StatusOr<std::unique_ptr<NamedTensors>> Attach(std::unique_ptr<NamedTensors> own,
                                                     std::vector<Attachment> attached);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_
