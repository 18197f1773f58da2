#include "worker/torch/tensor_access.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "c10/core/InferenceMode.h"
#include "c10/util/DimVector.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/torch/guard.h"
#include "worker/torch/placement.h"
#include "worker/torch/scalar_types.h"

namespace lockstep {
namespace {

// Why the tensor holds no plain values now, and what to do; empty if it does.
std::string WhyUnfit(const at::Tensor& tensor) {
  if (!tensor.defined()) return "is undefined; give it a value, or do not register it";
  if (tensor.is_quantized() || FromScalarType(tensor.scalar_type()) == DType::kUnspecified) {
    return absl::StrCat("has element type ", c10::toString(tensor.scalar_type()),
                        ", which cannot be synchronised; convert it to a plain type");
  }
  if (tensor.layout() != at::kStrided || tensor.is_nested()) {
    return "is sparse, nested or of another layout that is not dense; use to_dense()";
  }
  if (tensor.is_meta()) return "is on the meta device and has no values; materialise it first";
  if (tensor.numel() > 0 && !tensor.unsafeGetTensorImpl()->storage_initialized()) {
    return "has no memory yet; run one forward or initialise it first";
  }
  return "";
}

absl::Status Unfit(absl::string_view kind, absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(kind, " ", Quoted(name), " ", why,
                   kind == "buffer" ? ", or exclude it from the sync" : ""));
}

// `tensor` with one index left of each dimension along which the elements of
// `like`, which has its shape, are one and the same (stride 0: expand() makes them).
at::Tensor Collapse(at::Tensor tensor, const at::Tensor& like) {
  for (std::int64_t i = 0; i < like.dim(); ++i) {
    if (like.size(i) > 1 && like.stride(i) == 0) tensor = tensor.narrow(i, 0, 1);
  }
  return tensor;
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

bool IsPlainMemory(const at::Tensor& tensor, c10::Device device) {
  return (tensor.device().is_cpu() || LiesOn(tensor, device)) && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg();
}

// Equal for two tensors exactly if they are the same elements in the same order.
// Asks for memory to be written to: before, copy-on-write lets two tensors that
// are not the same share it.
using Identity =
    std::tuple<const void*, c10::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>>;

Identity IdentityOf(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides = tensor.strides().vec();
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) <= 1) strides[i] = 0;  // says nothing
  }
  return {tensor.numel() == 0 ? tensor.unsafeGetTensorImpl() : tensor.mutable_data_ptr(),
          tensor.scalar_type(), tensor.sizes().vec(), std::move(strides)};
}

// Keeps neither the values of the tensor nor its history alive.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>;

// What a tensor was when it was found, as far as views depend on it.
class Found {
 public:
  explicit Found(const at::Tensor& tensor)
      : tensor_(tensor.getIntrusivePtr()),
        keys_(tensor.key_set()),
        dtype_(tensor.dtype()),
        data_(tensor.mutable_data_ptr()),
        sizes_and_strides_(tensor.sizes()) {
    sizes_and_strides_.append(tensor.strides().begin(), tensor.strides().end());
  }

  // Whether `tensor` is the one that was found, as it was. No other can be at its
  // address: that is kept for it. Memory is asked for as IdentityOf() does.
  bool IsStill(const at::Tensor& tensor) const {
    return tensor.unsafeGetTensorImpl() == tensor_._unsafe_get_target() &&
           tensor.key_set() == keys_ && tensor.dtype() == dtype_ &&
           tensor.mutable_data_ptr() == data_ && HasSizesAndStrides(tensor);
  }

 private:
  bool HasSizesAndStrides(const at::Tensor& tensor) const {
    const at::IntArrayRef sizes = tensor.sizes();
    const at::IntArrayRef strides = tensor.strides();
    if (sizes_and_strides_.size() != 2 * sizes.size()) return false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes_and_strides_[i] != sizes[i]) return false;
      if (sizes_and_strides_[sizes.size() + i] != strides[i]) return false;
    }
    return true;
  }

  WeakTensor tensor_;
  c10::DispatchKeySet keys_;  // its device, layout, conjugation, ...
  caffe2::TypeMeta dtype_;
  const void* data_;
  c10::DimVector sizes_and_strides_;
};

class TorchAccess final : public TensorAccess {
 public:
  TorchAccess(absl::string_view kind, TensorWalk walk, c10::Device device)
      : kind_(kind), walk_(std::move(walk)), device_(device) {}

  std::span<const TensorView> views() const override { return views_; }

  bool Renew() override {
    const absl::StatusOr<bool> renewed =
        GuardTorch("looking at tensors again", [&]() -> absl::StatusOr<bool> {
          if (!IsStillWhatWasFound()) return false;
          const c10::InferenceMode no_autograd;
          for (const Entry& entry : entries_) {
            if (entry.staged.defined()) at::Tensor(entry.staged).copy_(entry.tensor());
          }
          return true;
        });
    return renewed.ok() && *renewed;
  }

  absl::Status WriteBack(std::span<const std::size_t> written) override {
    return GuardTorch("writing synchronised tensors back", [&]() -> absl::Status {
      // Inference tensors can be written nowhere else, and the others here too.
      const c10::InferenceMode no_autograd;
      std::vector<at::Tensor> given;
      for (const Entry& entry : entries_) {
        if (overlapping_) given.push_back(entry.staged.defined() ? entry.staged : RowMajor(entry));
      }
      // All are checked before one is written.
      for (const std::size_t i : written) LOCKSTEP_RETURN_IF_ERROR(CheckCopiesAgree(i));
      for (const std::size_t i : written) {
        const Entry& entry = entries_[i];
        if (entry.staged.defined()) {
          const at::Tensor tensor = entry.tensor();
          Collapse(tensor, tensor).copy_(Collapse(entry.staged, tensor));
        } else if (c10::TensorImpl* impl = entry.weak._unsafe_get_target(); !impl->is_inference()) {
          impl->bump_version();
        }
      }
      return overlapping_ ? CheckHeld(given) : absl::OkStatus();
    });
  }

  // The next tensor of the walk, which is not one of the access.
  void LeaveOut(absl::string_view name) { found_.push_back({std::string(name), std::nullopt}); }

  // The next tensor of the walk. Errors: as AccessTensors().
  absl::Status Take(absl::string_view name, const at::Tensor& tensor) {
    LOCKSTEP_ASSIGN_OR_RETURN(TensorSpec spec, DescribeTensor(kind_, {std::string(name), tensor}));
    if (!IsFreeOfOverlap(Collapse(tensor, tensor))) {
      return Unfit(kind_, name,
                   "has elements that overlap in memory, so a sync could not write it; make it "
                   "contiguous()");
    }
    found_.push_back({spec.name, Found(tensor)});
    if (identities_.insert(IdentityOf(tensor)).second) Add(std::move(spec), tensor);
    return absl::OkStatus();
  }

 private:
  struct Named {
    std::string name;
    std::optional<Found> found;  // nothing: left out
  };
  struct Entry {
    WeakTensor weak;
    at::Tensor staged;  // of its shape, row-major; undefined: viewed in place

    at::Tensor tensor() const { return at::Tensor(weak.lock()); }
  };

  bool IsStillWhatWasFound() const {
    auto next = found_.begin();
    const auto is_next = [&](absl::string_view name, const at::Tensor& tensor) {
      if (next == found_.end() || next->name != name) return false;
      const std::optional<Found>& found = next++->found;
      return !found.has_value() || found->IsStill(tensor);
    };
    return walk_(is_next) && next == found_.end();
  }

  void Add(TensorSpec spec, const at::Tensor& tensor) {
    Entry entry = {.weak = WeakTensor(tensor.getIntrusivePtr())};
    // Where two views overlap, a reduction of both in place would count the elements
    // of one in the other: all but the first are copied, before any is written.
    const bool apart = TakeMemory(tensor);
    overlapping_ = overlapping_ || !apart;
    if (!apart || !IsPlainMemory(tensor, device_)) entry.staged = RowMajor(entry);
    const at::Tensor& memory = entry.staged.defined() ? entry.staged : tensor;
    views_.push_back({.spec = std::move(spec),
                      .data = static_cast<std::byte*>(memory.mutable_data_ptr()),
                      .on_device = !memory.device().is_cpu()});
    entries_.push_back(std::move(entry));
  }

  static at::Tensor RowMajor(const Entry& entry) {
    const at::Tensor tensor = entry.tensor();
    return at::empty(tensor.sizes(), tensor.scalar_type()).copy_(tensor);
  }

  // Whether no other entry lies in the tensor's memory, gaps included.
  bool TakeMemory(const at::Tensor& tensor) {
    if (tensor.numel() == 0) return true;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.mutable_data_ptr());
    const std::uintptr_t end = begin + (last + 1) * tensor.element_size();
    const auto next = taken_.lower_bound(begin);
    if (next != taken_.end() && next->first < end) return false;
    if (next != taken_.begin() && std::prev(next)->second > begin) return false;
    taken_.emplace(begin, end);
    return true;
  }

  absl::Status CheckCopiesAgree(std::size_t i) const {
    const at::Tensor& staged = entries_[i].staged;
    if (!staged.defined()) return absl::OkStatus();
    const at::Tensor part = Collapse(staged, entries_[i].tensor());
    if (part.numel() == staged.numel()) return absl::OkStatus();
    const at::Tensor whole = part.expand_as(staged).contiguous();
    if (std::memcmp(whole.const_data_ptr(), staged.const_data_ptr(), staged.nbytes()) == 0) {
      return absl::OkStatus();
    }
    return Unfit(kind_, views_[i].spec.name,
                 "is expanded on this rank, one element standing for several, and cannot hold the "
                 "different values that the sync gave them; make it contiguous() on all ranks");
  }

  // Whether each tensor holds the values that its view was given: one that was
  // written later may have overwritten them.
  absl::Status CheckHeld(const std::vector<at::Tensor>& given) const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const at::Tensor held = RowMajor(entries_[i]);
      if (held.numel() == 0 ||
          std::memcmp(held.const_data_ptr(), given[i].const_data_ptr(), held.nbytes()) == 0) {
        continue;
      }
      return Unfit(kind_, views_[i].spec.name,
                   "shares memory with another tensor of the sync, which was given other values; "
                   "share it on all ranks alike and give both one operation and root");
    }
    return absl::OkStatus();
  }

  const std::string kind_;
  const TensorWalk walk_;
  const c10::Device device_;
  std::vector<Named> found_;  // all that the walk visits
  bool overlapping_ = false;  // perhaps: two entries, or their gaps
  std::vector<Entry> entries_;
  std::vector<TensorView> views_;  // one for each entry
  std::set<Identity> identities_;
  std::map<std::uintptr_t, std::uintptr_t> taken_;  // memory apart from others: begin, end
};

}  // namespace

TensorSpec SpecOf(const NamedTensor& named) {
  if (!WhyUnfit(named.tensor).empty()) return {.name = named.name};
  return {.name = named.name,
          .dtype = FromScalarType(named.tensor.scalar_type()),
          .shape = named.tensor.sizes().vec()};
}

absl::StatusOr<TensorSpec> DescribeTensor(absl::string_view kind, const NamedTensor& named) {
  const std::string why = WhyUnfit(named.tensor);
  if (!why.empty()) return Unfit(kind, named.name, why);
  return SpecOf(named);
}

absl::StatusOr<std::unique_ptr<TensorAccess>> AccessTensors(
    absl::string_view kind, TensorWalk walk,
    absl::FunctionRef<bool(absl::string_view name)> selects, c10::Device device) {
  return GuardTorch(absl::StrCat("finding each ", kind),
                    [&]() -> absl::StatusOr<std::unique_ptr<TensorAccess>> {
    auto access = std::make_unique<TorchAccess>(kind, walk, device);
    const c10::AutoGradMode no_grad(false);
    absl::Status status;
    walk([&](absl::string_view name, const at::Tensor& tensor) {
      if (selects(name)) {
        status = access->Take(name, tensor);
      } else {
        access->LeaveOut(name);
      }
      return status.ok();
    });
    LOCKSTEP_RETURN_IF_ERROR(status);
    return access;
  });
}

}  // namespace lockstep
