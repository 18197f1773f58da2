#include "worker/torch/module_model.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "ATen/ops/from_blob.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/torch/guard.h"
#include "worker/torch/tensor_access.h"

namespace lockstep {
namespace {

bool IsView(const at::Tensor& tensor, const at::Tensor& of) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == of.scalar_type() && tensor.device() == of.device() &&
         tensor.sizes() == of.sizes() && tensor.is_contiguous() &&
         (tensor.numel() == 0 || tensor.const_data_ptr() == of.const_data_ptr());
}

absl::Status CheckAdoptable(const at::Tensor& tensor, const Placement& placement,
                            std::size_t arena_elements) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", placement.name, "' ", why));
  };
  if (!tensor.defined()) return refuse("is in the plan but not in the module");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
      tensor.scalar_type() != at::kFloat) {
    return refuse(absl::StrCat("is ", c10::toString(tensor.scalar_type()), " on ",
                               tensor.device().str(),
                               "; a trainable parameter must be a dense float32 on the CPU: "
                               "convert it, or freeze it by requires_grad_(false)"));
  }
  if (tensor.numel() != placement.elements) {
    return refuse(absl::StrCat("has ", tensor.numel(), " elements, the plan says ",
                               placement.elements,
                               "; the module was changed after it was described"));
  }
  if (placement.offset < 0 ||
      placement.offset + placement.elements > static_cast<std::int64_t>(arena_elements)) {
    return refuse("does not fit into the arena; arena and plan must be of the same size");
  }
  return absl::OkStatus();
}

}  // namespace

ModuleModel::ModuleModel(std::unique_ptr<NamedTensors> tensors) : tensors_(std::move(tensors)) {}

ModuleModel::~ModuleModel() { Release(); }

std::vector<NamedTensor> ModuleModel::Parameters() const {
  std::vector<NamedTensor> unique;
  std::set<const void*> seen;
  for (NamedTensor& named : tensors_->Parameters()) {
    if (named.tensor.defined() && !seen.insert(named.tensor.unsafeGetTensorImpl()).second) continue;
    unique.push_back(std::move(named));
  }
  return unique;
}

bool ModuleModel::IsAdopted(const std::string& name) const {
  return adopted_names_.contains(name);
}

absl::StatusOr<Manifest> ModuleModel::Describe() const {
  return GuardTorch("describing the module", [&]() -> absl::StatusOr<Manifest> {
    Manifest manifest;
    for (const NamedTensor& parameter : Parameters()) {
      LOCKSTEP_ASSIGN_OR_RETURN(TensorSpec spec, DescribeTensor("parameter", parameter));
      manifest.parameters.push_back({std::move(spec), parameter.tensor.requires_grad()});
    }
    for (const NamedTensor& buffer : tensors_->Buffers()) {
      manifest.buffers.push_back(SpecOf(buffer));
    }
    LOCKSTEP_RETURN_IF_ERROR(Validate(manifest));
    return manifest;
  });
}

absl::Status ModuleModel::Adopt(const ShardPlan& plan, std::span<float> parameters,
                                std::span<float> gradients, InitialValues initial) {
  return GuardTorch("moving parameters into the arenas", [&]() -> absl::Status {
    if (!adopted_.empty()) {
      return absl::FailedPreconditionError(
          "the module's parameters are in arenas already; release them first");
    }
    std::map<std::string, at::Tensor> named;
    for (const NamedTensor& parameter : Parameters()) {
      named.emplace(parameter.name, parameter.tensor);
    }
    std::vector<Adopted> adopted;
    for (const Placement& placement : plan.placements) {
      const at::Tensor tensor = named[placement.name];
      LOCKSTEP_RETURN_IF_ERROR(
          CheckAdoptable(tensor, placement, std::min(parameters.size(), gradients.size())));
      adopted.push_back({.name = placement.name,
                         .tensor = tensor,
                         .values = at::from_blob(parameters.data() + placement.offset,
                                                 tensor.sizes(), at::kFloat),
                         .gradient = at::from_blob(gradients.data() + placement.offset,
                                                   tensor.sizes(), at::kFloat)});
    }
    const c10::AutoGradMode no_grad(false);
    for (Adopted& parameter : adopted) {
      if (initial == InitialValues::kCopyIn) parameter.values.copy_(parameter.tensor);
      parameter.gradient.zero_();
      parameter.tensor.set_data(parameter.values);
      parameter.tensor.mutable_grad() = parameter.gradient;
    }
    for (const Adopted& parameter : adopted) adopted_names_.insert(parameter.name);
    adopted_ = std::move(adopted);
    return absl::OkStatus();
  });
}

void ModuleModel::Release() {
  const absl::Status status = GuardTorch("giving the module its parameters back", [&] {
    const c10::AutoGradMode no_grad(false);
    for (Adopted& parameter : adopted_) {
      if (IsView(parameter.tensor, parameter.values)) {
        parameter.tensor.set_data(parameter.values.clone());
      }
      if (IsView(parameter.tensor.grad(), parameter.gradient)) {
        parameter.tensor.mutable_grad() = at::Tensor();
      }
    }
    return absl::OkStatus();
  });
  adopted_.clear();
  adopted_names_.clear();
  if (!status.ok()) LogError(status.message());
}

absl::Status ModuleModel::CollectGradients() {
  return GuardTorch("collecting gradients", [&]() -> absl::Status {
    const c10::AutoGradMode no_grad(false);
    std::map<std::string, at::Tensor> now;
    for (NamedTensor& parameter : Parameters()) {
      if (parameter.tensor.defined() && parameter.tensor.requires_grad() &&
          !IsAdopted(parameter.name)) {
        return absl::FailedPreconditionError(absl::StrCat(
            "parameter '", parameter.name,
            "' became trainable after joining and nobody would update it; set requires_grad "
            "before joining"));
      }
      now.emplace(std::move(parameter.name), std::move(parameter.tensor));
    }
    for (const Adopted& parameter : adopted_) {
      if (!IsView(now[parameter.name], parameter.values)) {
        return absl::FailedPreconditionError(absl::StrCat(
            "parameter '", parameter.name,
            "' is no longer a view of the arena it was moved into (moved, resized, converted or "
            "replaced); change modules before joining, and values in place"));
      }
    }
    for (Adopted& parameter : adopted_) {
      parameter.tensor = now[parameter.name];
      at::Tensor& grad = parameter.tensor.mutable_grad();
      if (IsView(grad, parameter.gradient)) continue;
      if (!grad.defined()) {
        parameter.gradient.zero_();
      } else {
        parameter.gradient.copy_(grad.layout() == at::kStrided ? grad.detach()
                                                               : grad.detach().to_dense());
      }
      grad = parameter.gradient;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<TensorAccess>> ModuleModel::Buffers(
    const std::function<bool(absl::string_view)>& selects) {
  return GuardTorch("finding buffers", [&] {
    std::vector<NamedTensor> selected;
    for (NamedTensor& buffer : tensors_->Buffers()) {
      if (selects(buffer.name)) selected.push_back(std::move(buffer));
    }
    return AccessTensors("buffer", std::move(selected));
  });
}

absl::StatusOr<std::unique_ptr<TensorAccess>> ModuleModel::FrozenParameters() {
  return GuardTorch("finding frozen parameters", [&] {
    std::vector<NamedTensor> frozen;
    for (NamedTensor& parameter : Parameters()) {
      const bool in_arena =
          adopted_.empty() ? parameter.tensor.requires_grad() : IsAdopted(parameter.name);
      if (!in_arena) frozen.push_back(std::move(parameter));
    }
    return AccessTensors("parameter", std::move(frozen));
  });
}

}  // namespace lockstep
