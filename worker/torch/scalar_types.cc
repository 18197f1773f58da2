#include "worker/torch/scalar_types.h"

#include "common/base/check.h"

namespace lockstep {

DType FromScalarType(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return DType::kBool;
    case c10::ScalarType::Char:
      return DType::kInt8;
    case c10::ScalarType::Short:
      return DType::kInt16;
    case c10::ScalarType::Int:
      return DType::kInt32;
    case c10::ScalarType::Long:
      return DType::kInt64;
    case c10::ScalarType::Byte:
      return DType::kUint8;
    case c10::ScalarType::UInt16:
      return DType::kUint16;
    case c10::ScalarType::UInt32:
      return DType::kUint32;
    case c10::ScalarType::UInt64:
      return DType::kUint64;
    case c10::ScalarType::Half:
      return DType::kFloat16;
    case c10::ScalarType::BFloat16:
      return DType::kBfloat16;
    case c10::ScalarType::Float:
      return DType::kFloat32;
    case c10::ScalarType::Double:
      return DType::kFloat64;
    case c10::ScalarType::ComplexHalf:
      return DType::kComplex32;
    case c10::ScalarType::ComplexFloat:
      return DType::kComplex64;
    case c10::ScalarType::ComplexDouble:
      return DType::kComplex128;
    case c10::ScalarType::Float8_e4m3fn:
      return DType::kFloat8E4m3fn;
    case c10::ScalarType::Float8_e5m2:
      return DType::kFloat8E5m2;
    case c10::ScalarType::Float8_e4m3fnuz:
      return DType::kFloat8E4m3fnuz;
    case c10::ScalarType::Float8_e5m2fnuz:
      return DType::kFloat8E5m2fnuz;
    case c10::ScalarType::Float8_e8m0fnu:
      return DType::kFloat8E8m0fnu;
    default:
      return DType::kUnspecified;
  }
}

c10::ScalarType ToScalarType(DType dtype) {
  LOCKSTEP_CHECK(IsTrainable(dtype));
  switch (dtype) {
    case DType::kBfloat16:
      return c10::ScalarType::BFloat16;
    case DType::kFloat16:
      return c10::ScalarType::Half;
    default:
      return c10::ScalarType::Float;
  }
}

}  // namespace lockstep
