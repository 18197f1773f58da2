// ModuleModel: a torch::nn or TorchScript module as the engine's Model.
//
// While it is adopted, the trainable parameters are views of the memory that owners
// update, and so are gradients of that which they read: a gradient moves there as soon
// as backward has made it, and what is accumulated later is added there. After a step
// parameters have no gradient, as after torch's zero_grad().
// Adopted parameters are contiguous.
//
//   owned --Adopt--> views --Release--> owned
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_
#define LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "c10/core/Device.h"
#include "worker/engine/model.h"
#include "worker/torch/gradient_view.h"
#include "worker/torch/named_tensors.h"

namespace lockstep {

class ModuleModel final : public Model {
 public:
  // `device`: where arenas lie, so that trainable parameters must; without an index, on
  // any one of its type.
  explicit ModuleModel(std::unique_ptr<NamedTensors> tensors, c10::Device device = c10::kCPU);
  ~ModuleModel() override;

  // Trainable: requires_grad. A parameter with two names has its first.
  absl::StatusOr<Manifest> Describe() const override;
  // Also InvalidArgument: the plan does not fit the parameters, named; a trainable one
  //   that is not dense or not on the arenas' device, named.
  absl::Status Adopt(const ShardPlan& plan, std::span<const BlockMemory> memory,
                     InitialValues initial) override;
  void Settle() override;
  void Release() override;
  // Also FailedPrecondition: a frozen parameter was made trainable, named.
  absl::StatusOr<GradientBound> CollectGradients() override;
  void TellOfGradients(std::function<void(std::size_t placement)> in_place) override;
  void ClearGradients() override;
  absl::StatusOr<std::unique_ptr<TensorAccess>> Buffers(
      const std::function<bool(absl::string_view)>& selects) override;
  absl::StatusOr<std::unique_ptr<TensorAccess>> FrozenParameters() override;

 private:
  struct Adopted {
    std::string name;
    at::Tensor tensor;  // the module's parameter
    at::Tensor values;  // its place, in its shape
    std::shared_ptr<GradientView> gradient;
    at::Tensor before = {};  // what it was, until it is settled; not defined: of no interest
  };

  // Makes it an owned copy again; where there is no memory for that, an empty tensor.
  static absl::Status GiveBack(const Adopted& parameter);

  // Without second names.
  std::vector<NamedTensor> Parameters() const;
  bool IsAdopted(const std::string& name) const;
  // Finds the tensors that the module has now for what was adopted. Errors: as
  //   CollectGradients().
  absl::Status FollowParameters();

  const std::unique_ptr<NamedTensors> tensors_;
  const c10::Device device_;
  std::function<void(std::size_t)> in_place_;  // of TellOfGradients(); views refer to it
  std::vector<Adopted> adopted_;  // in the plan's order; empty: owned
  // Places in adopted_.
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_tensor_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_MODULE_MODEL_H_
