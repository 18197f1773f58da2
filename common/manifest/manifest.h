// Manifest: what a model consists of, without its values.
//
// Two replicas can be trained together exactly if their manifests are equal.
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_MANIFEST_MANIFEST_H_
#define LOCKSTEP_COMMON_MANIFEST_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/manifest/dtype.h"

namespace lockstep {

// Bounds on what a worker may announce.
inline constexpr int kMaxTensors = 1'000'000;
inline constexpr int kMaxNameBytes = 1024;
inline constexpr int kMaxDimensions = 64;
inline constexpr int kMaxOptimizerBytes = 4096;

struct TensorSpec {
  std::string name;  // full dotted name, as torch's named_parameters() gives
  // kUnspecified, buffers only: it holds no plain values now (sparse, quantized,
  // not materialised), so it can be named but not synchronised.
  DType dtype = DType::kUnspecified;
  std::vector<std::int64_t> shape;  // empty: a scalar

  // Both stop at the largest number; a Manifest that passed Validate stays below.
  std::int64_t elements() const;
  std::int64_t bytes() const;
  std::string ToString() const;  // "float32[64, 3, 7, 7]": without the name

  bool operator==(const TensorSpec&) const = default;
};

struct ParameterSpec {
  TensorSpec tensor;
  bool trainable = true;  // frozen parameters are not sharded, only broadcast

  bool operator==(const ParameterSpec&) const = default;
};

struct Manifest {
  std::vector<ParameterSpec> parameters;  // in the model's order
  std::vector<TensorSpec> buffers;        // in the model's order
  // The optimizer with its settings, "AdamW(lr=0.0003, ...)". Replicas that
  // disagree on it would drift apart, so it is compared like a tensor.
  std::string optimizer;

  std::int64_t trainable_elements() const;
  std::int64_t buffer_bytes() const;
  std::uint64_t Digest() const;

  bool operator==(const Manifest&) const = default;
};

// Names may hold any printable UTF-8. Parameters and buffers share one space of
// names. Errors: InvalidArgument names the first tensor that is unnamed, named
//   twice, of unknown dtype, with a negative dimension or too large to count; or
//   the bound that is passed.
absl::Status Validate(const Manifest& manifest);

// The first difference between two manifests, as one line that names the tensor
// and both views: "parameter 'fc.weight': float32[10, 84] on a, absent on b".
// `a_name` and `b_name` say whose they are. Nothing if they are equal.
std::optional<std::string> FirstDifference(const std::string& a_name, const Manifest& a,
                                           const std::string& b_name, const Manifest& b);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MANIFEST_MANIFEST_H_
