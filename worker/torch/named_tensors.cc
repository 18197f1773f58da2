#include "worker/torch/named_tensors.h"

#include <algorithm>
#include <cstddef>
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
#include "worker/torch/nn_lists.h"

namespace lockstep {
namespace {

// Makes a dotted name one component longer while it is alive.
class Longer {
 public:
  Longer(std::string& path, absl::string_view component) : path_(path), length_(path.size()) {
    if (length_ > 0) path_.push_back('.');
    path_.append(component.data(), component.size());
  }
  ~Longer() { path_.resize(length_); }
  Longer(const Longer&) = delete;
  Longer& operator=(const Longer&) = delete;

 private:
  std::string& path_;
  const std::size_t length_;
};

using NnList = const NnTensorList& (*)(const torch::nn::Module& module);

// In the order of named_parameters() and named_buffers(), under the same names.
bool VisitNn(const torch::nn::Module& module, NnList list_of, std::string& path,
             NamedTensors::Visit visit) {
  for (const auto& item : list_of(module)) {
    if (!item.value().defined()) continue;
    const Longer name(path, item.key());
    if (!visit(path, item.value())) return false;
  }
  for (const auto& child : ChildrenOf(module)) {
    const Longer name(path, child.key());
    if (!VisitNn(*child.value(), list_of, path, visit)) return false;
  }
  return true;
}

class NnTensors final : public NamedTensors {
 public:
  explicit NnTensors(torch::nn::Module* module) : module_(module) {}

  bool VisitParameters(Visit visit) const override { return Walk(ParametersOf, visit); }
  bool VisitBuffers(Visit visit) const override { return Walk(BuffersOf, visit); }

 private:
  bool Walk(NnList list_of, Visit visit) const {
    std::string path;
    return VisitNn(*module_, list_of, path, visit);
  }

  torch::nn::Module* const module_;
};

// Likewise as torch::jit::Module names them.
bool VisitJit(const c10::ivalue::Object& module, c10::AttributeKind kind, std::string& path,
              NamedTensors::Visit visit) {
  const c10::ClassTypePtr type = module.type();
  const std::vector<c10::ClassAttribute>& attributes = type->getAttributes();
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    const c10::TypePtr& attribute = attributes[i].getType();
    const c10::IValue& value = module.getSlot(i);
    const Longer name(path, attributes[i].getName());
    if (attribute->is_module()) {
      if (!VisitJit(value.toObjectRef(), kind, path, visit)) return false;
      continue;
    }
    if (attributes[i].getKind() != kind) continue;
    const bool is_tensor = kind == c10::AttributeKind::PARAMETER
                               ? value.isTensor()
                               : attribute->isSubtypeOf(*c10::TensorType::get());
    if (is_tensor && !visit(path, value.toTensor())) return false;
  }
  return true;
}

class JitTensors final : public NamedTensors {
 public:
  explicit JitTensors(const torch::jit::Module& module) : module_(module) {}

  bool VisitParameters(Visit visit) const override {
    return Walk(c10::AttributeKind::PARAMETER, visit);
  }
  bool VisitBuffers(Visit visit) const override { return Walk(c10::AttributeKind::BUFFER, visit); }

 private:
  bool Walk(c10::AttributeKind kind, Visit visit) const {
    std::string path;
    return VisitJit(*module_._ivalue(), kind, path, visit);
  }

  const torch::jit::Module module_;
};

// All tensors of `attachment`, under their names behind its prefix.
bool VisitAll(const Attachment& attachment, NamedTensors::Visit visit) {
  std::string path = attachment.prefix;
  const auto visit_prefixed = [&](absl::string_view name, const at::Tensor& tensor) {
    const Longer prefixed(path, name);
    return visit(path, tensor);
  };
  return attachment.tensors->VisitParameters(visit_prefixed) &&
         attachment.tensors->VisitBuffers(visit_prefixed);
}

class WithAttached final : public NamedTensors {
 public:
  WithAttached(std::unique_ptr<NamedTensors> own, std::vector<Attachment> attached)
      : own_(std::move(own)), attached_(std::move(attached)) {}

  bool VisitParameters(Visit visit) const override { return own_->VisitParameters(visit); }
  bool VisitBuffers(Visit visit) const override {
    return own_->VisitBuffers(visit) &&
           std::ranges::all_of(attached_, [&](const Attachment& attachment) {
             return VisitAll(attachment, visit);
           });
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
    absl::Status status;
    VisitAll(attachment, [&](absl::string_view name, const at::Tensor& tensor) {
      const auto shared = trainable.find(StorageOf(tensor));
      if (!names.emplace(name).second) {
        status = absl::InvalidArgumentError(
            absl::StrCat("attached tensor ", Quoted(name),
                         " has a name that is there already; attach its module under another "
                         "prefix"));
      } else if (shared != trainable.end()) {
        status = absl::InvalidArgumentError(
            absl::StrCat("attached tensor ", Quoted(name),
                         " shares memory with the trainable parameter ", Quoted(shared->second),
                         ", which moves when the job is joined; attach a copy (clone())"));
      }
      return status.ok();
    });
    LOCKSTEP_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> Collect(absl::FunctionRef<bool(NamedTensors::Visit)> walk) {
  std::vector<NamedTensor> tensors;
  walk([&](absl::string_view name, const at::Tensor& tensor) {
    tensors.push_back({std::string(name), tensor});
    return true;
  });
  return tensors;
}

}  // namespace

std::vector<NamedTensor> NamedTensors::Parameters() const {
  return Collect([this](Visit visit) { return VisitParameters(visit); });
}

std::vector<NamedTensor> NamedTensors::Buffers() const {
  return Collect([this](Visit visit) { return VisitBuffers(visit); });
}

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
