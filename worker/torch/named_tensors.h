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

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_
