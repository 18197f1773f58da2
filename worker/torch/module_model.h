// ModuleModel: a torch::nn or TorchScript module as the engine's Model.
//
// While it is adopted, the trainable parameters and their gradients are views of
// two flat arenas: autograd accumulates where the transport reads, and an update
// of the arena is an update of the module. Adopted parameters are contiguous.
//
//   owned --Adopt--> views of the arenas --Release--> owned
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_
#define LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/engine/model.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {

class ModuleModel final : public Model {
 public:
  explicit ModuleModel(std::unique_ptr<NamedTensors> tensors);
  ~ModuleModel() override;

  // Trainable: requires_grad. A parameter with two names has its first.
  absl::StatusOr<Manifest> Describe() const override;
  // Also InvalidArgument: the plan does not fit the parameters, named; a
  //   trainable one that is not float32 on the CPU, named.
  absl::Status Adopt(const ShardPlan& plan, std::span<float> parameters,
                     std::span<float> gradients, InitialValues initial) override;
  void Release() override;
  // Also FailedPrecondition: a frozen parameter was made trainable, named.
  absl::Status CollectGradients() override;
  absl::StatusOr<std::unique_ptr<TensorAccess>> Buffers(
      const std::function<bool(absl::string_view)>& selects) override;
  absl::StatusOr<std::unique_ptr<TensorAccess>> FrozenParameters() override;

 private:
  struct Adopted {
    std::string name;
    at::Tensor tensor;    // the module's parameter
    at::Tensor values;    // its part of the parameter arena, in its shape
    at::Tensor gradient;  // its part of the gradient arena, in its shape
  };

  // Without second names.
  std::vector<NamedTensor> Parameters() const;
  bool IsAdopted(const std::string& name) const;

  const std::unique_ptr<NamedTensors> tensors_;
  std::vector<Adopted> adopted_;  // in the plan's order; empty: owned
  std::set<std::string> adopted_names_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_
