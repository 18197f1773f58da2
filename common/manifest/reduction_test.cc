#include "common/manifest/reduction.h"

#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(IsReducible, IsWhatEachTypeHasAMeaningFor) {
  const struct {
    DType dtype;
    std::string operations;
  } rows[] = {
      {DType::kUnspecified, ""},
      {DType::kBool, "sum min max"},
      {DType::kInt8, "sum min max"},
      {DType::kInt16, "sum min max"},
      {DType::kInt32, "sum min max"},
      {DType::kInt64, "sum min max"},
      {DType::kUint8, "sum min max"},
      {DType::kUint16, "sum min max"},
      {DType::kUint32, "sum min max"},
      {DType::kUint64, "sum min max"},
      {DType::kFloat16, "sum min max mean"},
      {DType::kBfloat16, "sum min max mean"},
      {DType::kFloat32, "sum min max mean"},
      {DType::kFloat64, "sum min max mean"},
      {DType::kComplex32, "sum mean"},
      {DType::kComplex64, "sum mean"},
      {DType::kComplex128, "sum mean"},
      {DType::kFloat8E4m3fn, "sum min max mean"},
      {DType::kFloat8E5m2, "sum min max mean"},
      {DType::kFloat8E4m3fnuz, "sum min max mean"},
      {DType::kFloat8E5m2fnuz, "sum min max mean"},
      {DType::kFloat8E8m0fnu, "min max"},
  };
  int number = 0;
  for (const auto& row : rows) {
    EXPECT_EQ(static_cast<int>(row.dtype), number++) << "a type without a row";
    std::string operations;
    for (const ReduceOp op : kReduceOps) {
      if (!IsReducible(row.dtype, op)) continue;
      if (!operations.empty()) operations += " ";
      operations += std::string(ReduceOpName(op));
    }
    EXPECT_EQ(operations, row.operations) << DTypeName(row.dtype);
  }
  EXPECT_FALSE(DTypeFromNumber(number).has_value()) << "a type without a row";
}

TEST(IsReducible, IsFalseForWhatIsNoOperation) {
  EXPECT_FALSE(IsReducible(DType::kFloat32, static_cast<ReduceOp>(4)));
  EXPECT_EQ(ReduceOpName(static_cast<ReduceOp>(-1)), "an unknown operation");
}

}  // namespace
}  // namespace lockstep
