#include "worker/torch/tensor_access.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/base/status_macros.h"
#include "worker/torch/guard.h"
#include "worker/torch/scalar_types.h"

namespace lockstep {
namespace {

absl::Status Unfit(absl::string_view kind, absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(kind, " '", name, "' ", why));
}

// Whether no two elements share memory, for certain: with dimensions sorted by
// stride, each must step over all that the smaller ones reach.
bool IsFreeOfOverlap(const at::Tensor& tensor) {
  if (tensor.numel() <= 1) return true;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, size
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) dimensions.emplace_back(tensor.stride(i), tensor.size(i));
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

bool IsPlainMemory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

// Equal for two tensors exactly if they are the same elements in the same order.
using Identity =
    std::tuple<const void*, c10::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Identity IdentityOf(const at::Tensor& tensor) {
  return {tensor.numel() == 0 ? tensor.unsafeGetTensorImpl() : tensor.const_data_ptr(),
          tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()};
}

class TorchAccess final : public TensorAccess {
 public:
  std::span<const TensorView> views() const override { return views_; }

  absl::Status WriteBack() override {
    return GuardTorch("writing synchronised tensors back", [&] {
      const c10::AutoGradMode no_grad(false);
      for (const Entry& entry : entries_) {
        if (entry.staged.defined()) {
          entry.tensor.copy_(entry.staged);
        } else if (!entry.tensor.is_inference()) {
          entry.tensor.unsafeGetTensorImpl()->bump_version();
        }
      }
      return absl::OkStatus();
    });
  }

  void Add(TensorSpec spec, const at::Tensor& tensor) {
    Entry entry = {.tensor = tensor};
    if (!IsPlainMemory(tensor)) {
      const c10::AutoGradMode no_grad(false);
      entry.staged = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
      entry.staged.copy_(tensor);
    }
    const at::Tensor& memory = entry.staged.defined() ? entry.staged : tensor;
    views_.push_back({std::move(spec), static_cast<std::byte*>(memory.mutable_data_ptr())});
    entries_.push_back(std::move(entry));
  }

 private:
  struct Entry {
    at::Tensor tensor;
    at::Tensor staged;  // undefined: viewed in place
  };

  std::vector<Entry> entries_;
  std::vector<TensorView> views_;  // one for each entry
};

}  // namespace

absl::StatusOr<TensorSpec> DescribeTensor(absl::string_view kind, const NamedTensor& named) {
  const auto& [name, tensor] = named;
  if (!tensor.defined()) {
    return Unfit(kind, name, "is undefined; give it a value before joining, or do not register it");
  }
  if (tensor.layout() != at::kStrided) {
    return Unfit(kind, name, "is sparse; only dense tensors can take part, use to_dense()");
  }
  if (tensor.is_meta()) {
    return Unfit(kind, name, "is on the meta device and has no values; materialise it first");
  }
  if (tensor.numel() > 0 && tensor.const_data_ptr() == nullptr) {
    return Unfit(kind, name, "has no memory yet; run one forward or initialise it before joining");
  }
  const DType dtype = FromScalarType(tensor.scalar_type());
  if (dtype == DType::kUnspecified || tensor.is_quantized()) {
    return Unfit(kind, name,
                 absl::StrCat("has element type ", c10::toString(tensor.scalar_type()),
                              ", which cannot be synchronised; convert it to a plain type"));
  }
  return TensorSpec{.name = name, .dtype = dtype, .shape = tensor.sizes().vec()};
}

absl::StatusOr<std::unique_ptr<TensorAccess>> AccessTensors(absl::string_view kind,
                                                            std::vector<NamedTensor> tensors) {
  return GuardTorch(absl::StrCat("finding each ", kind),
                    [&]() -> absl::StatusOr<std::unique_ptr<TensorAccess>> {
    auto access = std::make_unique<TorchAccess>();
    std::map<Identity, std::string> seen;
    for (const NamedTensor& named : tensors) {
      LOCKSTEP_ASSIGN_OR_RETURN(TensorSpec spec, DescribeTensor(kind, named));
      if (!IsFreeOfOverlap(named.tensor)) {
        return Unfit(kind, named.name,
                     "has elements that share memory (expanded or overlapping), so a sync could "
                     "not write it; make it contiguous() or exclude it from the sync");
      }
      if (!seen.emplace(IdentityOf(named.tensor), named.name).second) continue;
      access->Add(std::move(spec), named.tensor);
    }
    return access;
  });
}

}  // namespace lockstep
