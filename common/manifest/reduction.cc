#include "common/manifest/reduction.h"

namespace lockstep {
namespace {

enum class Kind { kNone, kWhole, kFloating, kComplex, kScale };

Kind KindOf(DType dtype) {
  switch (dtype) {
    case DType::kUnspecified:
      return Kind::kNone;
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
      return Kind::kWhole;
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
      return Kind::kFloating;
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return Kind::kComplex;
    case DType::kFloat8E8m0fnu:
      return Kind::kScale;
  }
  return Kind::kNone;
}

}  // namespace

absl::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMean:
      return "mean";
  }
  return "an unknown operation";
}

bool IsReducible(DType dtype, ReduceOp op) {
  const Kind kind = KindOf(dtype);
  if (kind == Kind::kNone) return false;
  switch (op) {
    case ReduceOp::kSum:
      return kind != Kind::kScale;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return kind != Kind::kComplex;
    case ReduceOp::kMean:
      return kind == Kind::kFloating || kind == Kind::kComplex;
  }
  return false;
}

}  // namespace lockstep
