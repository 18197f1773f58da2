#include "worker/torch/module_model.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/core/GradMode.h"
#include "c10/core/InferenceMode.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/torch/guard.h"
#include "worker/torch/placement.h"
#include "worker/torch/scalar_types.h"
#include "worker/torch/tensor_access.h"

namespace lockstep {
namespace {

absl::Status CheckAdoptable(const at::Tensor& tensor, const Placement& placement,
                            const Block& block, c10::Device device) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", placement.name, "' ", why));
  };
  if (!tensor.defined()) return refuse("is in the plan but not in the module");
  if (!LiesOn(tensor, device) || tensor.layout() != at::kStrided) {
    return refuse(absl::StrCat("is not dense memory of ", device.str(), " (it is ",
                               c10::str(tensor.layout()), " on ", tensor.device().str(),
                               "): with this transport a trainable parameter must be; move the "
                               "module there before joining, or freeze it by "
                               "requires_grad_(false)"));
  }
  if (tensor.numel() != placement.elements ||
      (placement.elements > 0 && FromScalarType(tensor.scalar_type()) != block.dtype)) {
    return refuse(absl::StrCat("is ", c10::toString(tensor.scalar_type()), " with ",
                               tensor.numel(), " elements, the plan says ", DTypeName(block.dtype),
                               " with ", placement.elements,
                               "; the module was changed after it was described"));
  }
  if (placement.elements == 0) return absl::OkStatus();
  if (placement.offset < block.begin || placement.offset + placement.elements > block.end) {
    return refuse("does not fit into its block; plan and memory must be of one model");
  }
  return absl::OkStatus();
}

// The values that were moved leave as much free memory as the model has, which the C
// library, or LibTorch for a device, would keep for itself.
void ReturnFreeMemory(c10::Device device) {
  if (!device.is_cpu()) {
    auto* const cache = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
    if (cache != nullptr && cache->initialized()) cache->emptyCache();
  }
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// In the shape and type of `like`.
at::Tensor ViewOf(std::byte* data, const at::Tensor& like) {
  return TensorAt(data, like.sizes(), like.scalar_type(), like.device());
}

}  // namespace

ModuleModel::ModuleModel(std::unique_ptr<NamedTensors> tensors, c10::Device device)
    : tensors_(std::move(tensors)), device_(device) {}

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
  return by_name_.contains(name);
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

absl::Status ModuleModel::Adopt(const ShardPlan& plan, std::span<const BlockMemory> memory,
                                InitialValues initial) {
  return GuardTorch("moving parameters into the arenas", [&]() -> absl::Status {
    if (!adopted_.empty()) {
      return absl::FailedPreconditionError(
          "the module's parameters are in arenas already; release them first");
    }
    std::map<std::string, at::Tensor> named;
    for (const NamedTensor& parameter : Parameters()) {
      named.emplace(parameter.name, parameter.tensor);
    }
    // What is made here is written to outside of it.
    const c10::InferenceMode no_inference(false);
    std::vector<Adopted> adopted;
    for (const Placement& placement : plan.placements) {
      const std::size_t at = BlockAt(plan, placement.offset);
      const BlockMemory place = at < memory.size() ? memory[at] : BlockMemory();
      const at::Tensor tensor = named[placement.name];
      LOCKSTEP_RETURN_IF_ERROR(CheckAdoptable(tensor, placement, place.block, device_));
      // One without elements lies nowhere.
      const std::int64_t offset =
          placement.elements == 0
              ? 0
              : (placement.offset - place.block.begin) * ElementBytes(place.block.dtype);
      adopted.push_back({.name = placement.name,
                         .tensor = tensor,
                         .values = ViewOf(place.parameters + offset, tensor),
                         .gradient = std::make_shared<GradientView>(
                             ViewOf(place.gradients + offset, tensor))});
    }
    const c10::AutoGradMode no_grad(false);
    // Before any parameter changes, which may fail for each of them.
    if (initial == InitialValues::kCopyIn) {
      for (Adopted& parameter : adopted) parameter.values.copy_(parameter.tensor);
    }
    for (std::size_t i = 0; i < adopted.size(); ++i) {
      by_name_.emplace(adopted[i].name, i);
      by_tensor_.emplace(adopted[i].tensor.unsafeGetTensorImpl(), i);
    }
    // From here on Release() undoes what was done.
    adopted_ = std::move(adopted);
    absl::Cleanup undo = [this] { Release(); };
    for (Adopted& parameter : adopted_) {
      if (initial == InitialValues::kDiscard) parameter.before = parameter.tensor.detach();
      parameter.tensor.set_data(parameter.values);
      parameter.tensor.mutable_grad() = at::Tensor();
      GradientView::Attach(parameter.gradient, parameter.tensor);
    }
    std::move(undo).Cancel();
    ReturnFreeMemory(device_);
    return absl::OkStatus();
  });
}

void ModuleModel::Settle() {
  bool any = false;
  for (Adopted& parameter : adopted_) {
    any = any || parameter.before.defined();
    parameter.before.reset();
  }
  if (any) ReturnFreeMemory(device_);
}

void ModuleModel::Release() {
  for (const Adopted& parameter : adopted_) {
    const absl::Status status =
        GuardTorch("giving the module a parameter back", [&] { return GiveBack(parameter); });
    if (!status.ok()) LogError("parameter '", parameter.name, "': ", status.message());
  }
  if (!adopted_.empty() && !device_.is_cpu()) {
    const absl::Status status = GuardTorch("waiting for the device", [&] {
      // It may still read the arenas, which are freed next.
      const c10::impl::VirtualGuardImpl guard(device_.type());
      guard.synchronizeDevice(adopted_[0].values.device().index());
      return absl::OkStatus();
    });
    if (!status.ok()) LogError(status.message());
  }
  adopted_.clear();
  by_name_.clear();
  by_tensor_.clear();
}

absl::Status ModuleModel::GiveBack(const Adopted& parameter) {
  // What is made here is trained outside of it.
  const c10::InferenceMode no_inference(false);
  const c10::AutoGradMode no_grad(false);
  GradientView::Detach(*parameter.gradient, parameter.tensor);
  if (IsView(parameter.tensor.grad(), parameter.gradient->place())) {
    parameter.tensor.mutable_grad() = at::Tensor();
  }
  if (!IsView(parameter.tensor, parameter.values)) return absl::OkStatus();
  if (parameter.before.defined()) {
    parameter.tensor.set_data(parameter.before);
    return absl::OkStatus();
  }
  const absl::StatusOr<at::Tensor> copy = GuardTorch(
      "copying its values", [&]() -> absl::StatusOr<at::Tensor> { return parameter.values.clone(); });
  // Whatever happens, it must not stay where the memory goes.
  parameter.tensor.set_data(copy.ok() ? *copy : at::empty({0}, parameter.values.options()));
  return copy.status();
}

absl::Status ModuleModel::FollowParameters() {
  std::vector<bool> found(adopted_.size());
  std::string unfrozen;
  std::string moved;
  tensors_->VisitParameters([&](absl::string_view name, const at::Tensor& tensor) {
    if (!tensor.defined()) return true;
    const auto known = by_tensor_.find(tensor.unsafeGetTensorImpl());
    if (known != by_tensor_.end()) {
      found[known->second] = true;
      return true;
    }
    const auto adopted = by_name_.find(name);
    if (adopted == by_name_.end()) {
      if (tensor.requires_grad()) unfrozen = std::string(name);
      return unfrozen.empty();
    }
    Adopted& parameter = adopted_[adopted->second];
    if (!IsView(tensor, parameter.values)) {
      // Also where the adopted tensor has a second name, by which it is found.
      moved = parameter.name;
      return false;
    }
    // Another tensor of the same memory.
    by_tensor_.erase(parameter.tensor.unsafeGetTensorImpl());
    GradientView::Detach(*parameter.gradient, parameter.tensor);
    GradientView::Attach(parameter.gradient, tensor);
    parameter.tensor = tensor;
    by_tensor_.emplace(tensor.unsafeGetTensorImpl(), adopted->second);
    found[adopted->second] = true;
    return true;
  });
  if (!unfrozen.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter '", unfrozen,
        "' became trainable after joining and nobody would update it; set requires_grad "
        "before joining"));
  }
  for (std::size_t i = 0; i < adopted_.size() && moved.empty(); ++i) {
    if (!found[i] || !IsView(adopted_[i].tensor, adopted_[i].values)) moved = adopted_[i].name;
  }
  if (moved.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", moved,
      "' is no longer a view of the arena it was moved into (moved, resized, converted or "
      "replaced); change modules before joining, and values in place"));
}

absl::StatusOr<GradientBound> ModuleModel::CollectGradients() {
  return GuardTorch("collecting gradients", [&]() -> absl::StatusOr<GradientBound> {
    LOCKSTEP_RETURN_IF_ERROR(FollowParameters());
    for (const Adopted& parameter : adopted_) {
      if (!parameter.gradient->ChangedSinceTold(parameter.tensor)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "the gradient of parameter '", parameter.name,
          "' was changed after backward had made it, when it may have been sent already. "
          "Announce the last backward of a step only, and do not change gradients after it; "
          "or do not announce it"));
    }
    std::vector<GradientView*> gradients;
    for (const Adopted& parameter : adopted_) {
      parameter.gradient->Collect(parameter.tensor);
      gradients.push_back(parameter.gradient.get());
    }
    GradientView::FinishMeasuring(gradients);
    GradientBound bound;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const float largest = gradients[i]->largest();
      bound.largest = std::max(bound.largest, largest);
      if (std::isinf(largest) && bound.not_finite == kAllFinite) {
        bound.not_finite = static_cast<std::int64_t>(i);
      }
    }
    return bound;
  });
}

void ModuleModel::TellOfGradients(std::function<void(std::size_t placement)> in_place) {
  in_place_ = std::move(in_place);
  for (std::size_t i = 0; i < adopted_.size(); ++i) {
    adopted_[i].gradient->TellWhenInPlace([this, i] { in_place_(i); });
  }
}

void ModuleModel::ClearGradients() {
  for (Adopted& parameter : adopted_) parameter.tensor.mutable_grad() = at::Tensor();
}

absl::StatusOr<std::unique_ptr<TensorAccess>> ModuleModel::Buffers(
    const std::function<bool(absl::string_view)>& selects) {
  return AccessTensors(
      "buffer",
      [this](NamedTensors::Visit visit) { return tensors_->VisitBuffers(visit); }, selects,
      device_);
}

absl::StatusOr<std::unique_ptr<TensorAccess>> ModuleModel::FrozenParameters() {
  const auto is_frozen = [this](const NamedTensor& parameter) {
    return adopted_.empty() ? !parameter.tensor.requires_grad() : !IsAdopted(parameter.name);
  };
  return AccessTensors(
      "parameter",
      [this, is_frozen](NamedTensors::Visit visit) {
        return std::ranges::all_of(Parameters(), [&](const NamedTensor& parameter) {
          return !is_frozen(parameter) || visit(parameter.name, parameter.tensor);
        });
      },
      [](absl::string_view) { return true; }, device_);
}

}  // namespace lockstep
