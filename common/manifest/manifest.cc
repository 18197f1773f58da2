#include "common/manifest/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// For factors >= 0.
std::int64_t SaturatingProduct(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kLargest : product;
}

std::int64_t SaturatingSum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kLargest : sum;
}

void AddTo(Digester& digester, const TensorSpec& tensor) {
  digester.Add(tensor.name)
      .Add(static_cast<std::int64_t>(tensor.dtype))
      .Add(static_cast<std::int64_t>(tensor.shape.size()));
  for (const std::int64_t dimension : tensor.shape) digester.Add(dimension);
}

std::string Describe(const ParameterSpec& parameter) {
  return absl::StrCat(parameter.tensor.ToString(), parameter.trainable ? "" : " (frozen)");
}
std::string Describe(const TensorSpec& buffer) { return buffer.ToString(); }

const std::string& NameOf(const ParameterSpec& parameter) { return parameter.tensor.name; }
const std::string& NameOf(const TensorSpec& buffer) { return buffer.name; }

// `kind` is "parameter" or "buffer", `index` its place in that list.
absl::Status CheckTensor(absl::string_view kind, std::size_t index, const TensorSpec& tensor) {
  if (tensor.name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, " ", index, " has no name; give its full dotted name"));
  }
  const std::string what = absl::StrCat(kind, " ", Quoted(tensor.name));
  if (tensor.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has a name of ", tensor.name.size(),
                                                   " bytes; at most ", kMaxNameBytes,
                                                   " are allowed"));
  }
  if (!IsPrintable(tensor.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a name with control characters or malformed UTF-8; names are "
                           "printable UTF-8"));
  }
  const bool has_no_values = kind == "buffer" && tensor.dtype == DType::kUnspecified;
  if (!has_no_values && !DTypeFromNumber(static_cast<std::int64_t>(tensor.dtype)).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has the unknown dtype number ",
                                                   static_cast<std::int64_t>(tensor.dtype)));
  }
  if (tensor.shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has ", tensor.shape.size(),
                                                   " dimensions; at most ", kMaxDimensions,
                                                   " are allowed"));
  }
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, " is ", tensor.ToString(),
                                                     "; dimensions cannot be negative"));
    }
  }
  if (tensor.bytes() == kLargest) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " is ", tensor.ToString(), "; its size in bytes does not fit into 63 bits"));
  }
  return absl::OkStatus();
}

// The first difference between two lists of tensors of one kind.
template <typename Spec>
std::optional<std::string> FirstDifferenceIn(absl::string_view kind, const std::string& a_name,
                                             const std::vector<Spec>& a, const std::string& b_name,
                                             const std::vector<Spec>& b) {
  const auto absent = [&](const Spec& spec, const std::string& here, const std::string& there) {
    return absl::StrCat(kind, " ", Quoted(NameOf(spec)), ": ", Describe(spec), " on ", here,
                        ", absent on ", there);
  };
  const auto holds = [](const std::vector<Spec>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Spec& spec) { return NameOf(spec) == name; });
  };
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (a[i] == b[i]) continue;
    if (NameOf(a[i]) == NameOf(b[i])) {
      return absl::StrCat(kind, " ", Quoted(NameOf(a[i])), ": ", Describe(a[i]), " on ", a_name,
                          ", ", Describe(b[i]), " on ", b_name);
    }
    if (!holds(b, NameOf(a[i]))) return absent(a[i], a_name, b_name);
    if (!holds(a, NameOf(b[i]))) return absent(b[i], b_name, a_name);
    return absl::StrCat(kind, " ", i, ": ", Quoted(NameOf(a[i])), " on ", a_name, ", ",
                        Quoted(NameOf(b[i])), " on ", b_name, "; the order must be the same");
  }
  if (a.size() > common) return absent(a[common], a_name, b_name);
  if (b.size() > common) return absent(b[common], b_name, a_name);
  return std::nullopt;
}

}  // namespace

std::int64_t TensorSpec::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    // An empty tensor is empty, however large its other dimensions are.
    if (dimension <= 0) return 0;
    product = SaturatingProduct(product, dimension);
  }
  return product;
}

std::int64_t TensorSpec::bytes() const {
  return SaturatingProduct(elements(), ElementBytes(dtype));
}

std::string TensorSpec::ToString() const {
  if (dtype == DType::kUnspecified) return "no plain values";
  return absl::StrCat(DTypeName(dtype), "[", absl::StrJoin(shape, ", "), "]");
}

std::int64_t Manifest::trainable_elements() const {
  std::int64_t sum = 0;
  for (const ParameterSpec& parameter : parameters) {
    if (parameter.trainable) sum = SaturatingSum(sum, parameter.tensor.elements());
  }
  return sum;
}

std::int64_t Manifest::buffer_bytes() const {
  std::int64_t sum = 0;
  for (const TensorSpec& buffer : buffers) sum = SaturatingSum(sum, buffer.bytes());
  return sum;
}

std::uint64_t Manifest::Digest() const {
  Digester digester;
  digester.Add(static_cast<std::int64_t>(parameters.size()));
  for (const ParameterSpec& parameter : parameters) {
    AddTo(digester, parameter.tensor);
    digester.Add(std::int64_t{parameter.trainable});
  }
  digester.Add(static_cast<std::int64_t>(buffers.size()));
  for (const TensorSpec& buffer : buffers) AddTo(digester, buffer);
  return digester.Add(absl::string_view(optimizer)).Finish();
}

absl::Status Validate(const Manifest& manifest) {
  const std::size_t tensors = manifest.parameters.size() + manifest.buffers.size();
  if (tensors > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("the manifest has ", tensors,
                                                   " tensors; at most ", kMaxTensors,
                                                   " are allowed"));
  }
  if (manifest.optimizer.size() > kMaxOptimizerBytes || !IsPrintable(manifest.optimizer)) {
    return absl::InvalidArgumentError(absl::StrCat("the optimizer ", Quoted(manifest.optimizer),
                                                   " is not printable UTF-8 of at most ",
                                                   kMaxOptimizerBytes, " bytes"));
  }
  std::set<absl::string_view> names;
  std::int64_t bytes = 0;
  const auto check = [&](absl::string_view kind, std::size_t index,
                         const TensorSpec& tensor) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(CheckTensor(kind, index, tensor));
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kind, " ", Quoted(tensor.name),
                       " has the name of an earlier tensor; names are unique over parameters "
                       "and buffers"));
    }
    bytes = SaturatingSum(bytes, tensor.bytes());
    if (bytes == kLargest) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tensors up to ", kind, " ", Quoted(tensor.name),
          " have more bytes than fit into 63 bits"));
    }
    return absl::OkStatus();
  };
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(check("parameter", i, manifest.parameters[i].tensor));
  }
  for (std::size_t i = 0; i < manifest.buffers.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(check("buffer", i, manifest.buffers[i]));
  }
  return absl::OkStatus();
}

std::optional<std::string> FirstDifference(const std::string& a_name, const Manifest& a,
                                           const std::string& b_name, const Manifest& b) {
  if (auto difference =
          FirstDifferenceIn("parameter", a_name, a.parameters, b_name, b.parameters)) {
    return difference;
  }
  if (auto difference = FirstDifferenceIn("buffer", a_name, a.buffers, b_name, b.buffers)) {
    return difference;
  }
  if (a.optimizer != b.optimizer) {
    return absl::StrCat("optimizer: ", a.optimizer.empty() ? "none" : a.optimizer, " on ", a_name,
                        ", ", b.optimizer.empty() ? "none" : b.optimizer, " on ", b_name);
  }
  return std::nullopt;
}

}  // namespace lockstep
