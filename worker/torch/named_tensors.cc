#include "worker/torch/named_tensors.h"

#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "torch/csrc/jit/api/module.h"
#include "torch/nn/module.h"
#include "worker/torch/guard.h"

namespace lockstep {
namespace {

class NnTensors final : public NamedTensors {
 public:
  explicit NnTensors(torch::nn::Module* module) : module_(module) {}

  std::vector<NamedTensor> Parameters() const override {
    return List(module_->named_parameters());
  }
  std::vector<NamedTensor> Buffers() const override { return List(module_->named_buffers()); }

 private:
  static std::vector<NamedTensor> List(
      const torch::OrderedDict<std::string, at::Tensor>& registered) {
    std::vector<NamedTensor> tensors;
    for (const auto& item : registered) tensors.push_back({item.key(), item.value()});
    return tensors;
  }

  torch::nn::Module* const module_;
};

class JitTensors final : public NamedTensors {
 public:
  explicit JitTensors(const torch::jit::Module& module) : module_(module) {}

  std::vector<NamedTensor> Parameters() const override {
    std::vector<NamedTensor> tensors;
    for (const auto& item : module_.named_parameters()) tensors.push_back({item.name, item.value});
    return tensors;
  }
  std::vector<NamedTensor> Buffers() const override {
    std::vector<NamedTensor> tensors;
    for (const auto& item : module_.named_buffers()) tensors.push_back({item.name, item.value});
    return tensors;
  }

 private:
  const torch::jit::Module module_;
};

std::vector<NamedTensor> AllOf(const Attachment& attachment) {
  std::vector<NamedTensor> all = attachment.tensors->Parameters();
  for (NamedTensor& buffer : attachment.tensors->Buffers()) all.push_back(std::move(buffer));
  for (NamedTensor& named : all) named.name = absl::StrCat(attachment.prefix, ".", named.name);
  return all;
}

class WithAttached final : public NamedTensors {
 public:
  WithAttached(std::unique_ptr<NamedTensors> own, std::vector<Attachment> attached)
      : own_(std::move(own)), attached_(std::move(attached)) {}

  std::vector<NamedTensor> Parameters() const override { return own_->Parameters(); }
  std::vector<NamedTensor> Buffers() const override {
    std::vector<NamedTensor> buffers = own_->Buffers();
    for (const Attachment& attachment : attached_) {
      for (NamedTensor& named : AllOf(attachment)) buffers.push_back(std::move(named));
    }
    return buffers;
  }

 private:
  const std::unique_ptr<NamedTensors> own_;
  const std::vector<Attachment> attached_;
};

absl::Status CheckPrefix(const std::string& prefix) {
  bool is_dotted = !prefix.empty() && IsPrintable(prefix);
  for (const absl::string_view component : absl::StrSplit(prefix, '.')) {
    is_dotted = is_dotted && !component.empty();
  }
  if (is_dotted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an attached module has the prefix ", Quoted(prefix),
                   "; expected one or several names with dots between them, such as 'ema'"));
}

// Null if there is no memory yet.
const c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.is_meta()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

absl::Status CheckAttached(const NamedTensors& own, const std::vector<Attachment>& attached) {
  std::set<std::string> names;
  std::map<const c10::StorageImpl*, std::string> trainable;
  for (const NamedTensor& parameter : own.Parameters()) {
    names.insert(parameter.name);
    const c10::StorageImpl* storage = StorageOf(parameter.tensor);
    if (storage != nullptr && parameter.tensor.requires_grad()) {
      trainable.emplace(storage, parameter.name);
    }
  }
  for (const NamedTensor& buffer : own.Buffers()) names.insert(buffer.name);
  for (const Attachment& attachment : attached) {
    LOCKSTEP_RETURN_IF_ERROR(CheckPrefix(attachment.prefix));
    for (const NamedTensor& named : AllOf(attachment)) {
      if (!names.insert(named.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("attached tensor ", Quoted(named.name),
                         " has a name that is there already; attach its module under another "
                         "prefix"));
      }
      const auto shared = trainable.find(StorageOf(named.tensor));
      if (shared != trainable.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("attached tensor ", Quoted(named.name),
                         " shares memory with the trainable parameter ", Quoted(shared->second),
                         ", which moves when the job is joined; attach a copy (clone())"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<NamedTensors> TensorsOf(torch::nn::Module& module) {
  return std::make_unique<NnTensors>(&module);
}

std::unique_ptr<NamedTensors> TensorsOf(torch::jit::Module& module) {
  return std::make_unique<JitTensors>(module);
}

absl::StatusOr<std::unique_ptr<NamedTensors>> Attach(std::unique_ptr<NamedTensors> own,
                                                     std::vector<Attachment> attached) {
  return GuardTorch("attaching modules", [&]() -> absl::StatusOr<std::unique_ptr<NamedTensors>> {
    LOCKSTEP_RETURN_IF_ERROR(CheckAttached(*own, attached));
    return std::make_unique<WithAttached>(std::move(own), std::move(attached));
  });
}

}  // namespace lockstep
