// NamedTensors: what a module consists of at this moment, by name.
//
// The seam between the two kinds of LibTorch modules and ModuleModel. Tensors are
// handles: what is done to one is seen by the module. Used by one thread. Anything
// may throw what LibTorch throws.
#ifndef LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_
#define LOCKSTEP_WORKER_TORCH_NAMED_TENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

class NamedTensors {
 public:
  // Of one tensor, with its full dotted name; both are there for the call only.
  // False ends the walk.
  using Visit = absl::FunctionRef<bool(absl::string_view name, const at::Tensor& tensor)>;

  virtual ~NamedTensors() = default;
  // Walk through what the module has now, in its order, without copies; a tensor
  // with two names is visited under both. Whether all were visited.
  virtual bool VisitParameters(Visit visit) const = 0;
  virtual bool VisitBuffers(Visit visit) const = 0;

  // What a walk visits.
  std::vector<NamedTensor> Parameters() const;
  std::vector<NamedTensor> Buffers() const;
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
