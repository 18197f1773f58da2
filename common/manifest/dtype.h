// Element types of tensors, by LibTorch's names and sizes.
#ifndef LOCKSTEP_COMMON_MANIFEST_DTYPE_H_
#define LOCKSTEP_COMMON_MANIFEST_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace lockstep {

// Values are part of the wire contract (proto/lockstep/v1): never renumber.
enum class DType : std::int32_t {
  kUnspecified = 0,
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint16 = 7,
  kUint32 = 8,
  kUint64 = 9,
  kFloat16 = 10,
  kBfloat16 = 11,
  kFloat32 = 12,
  kFloat64 = 13,
  kComplex32 = 14,
  kComplex64 = 15,
  kComplex128 = 16,
  kFloat8E4m3fn = 17,
  kFloat8E5m2 = 18,
  kFloat8E4m3fnuz = 19,
  kFloat8E5m2fnuz = 20,
  kFloat8E8m0fnu = 21,
};

// Bytes of one element; 0 for kUnspecified.
int ElementBytes(DType dtype);

// "float32", "bool", ...: as PyTorch prints them, without the "torch." prefix.
absl::string_view DTypeName(DType dtype);

// Whether parameters of that type can be trained.
bool IsTrainable(DType dtype);

// The type of that number on the wire, or nothing for an unknown one.
std::optional<DType> DTypeFromNumber(std::int64_t number);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MANIFEST_DTYPE_H_
