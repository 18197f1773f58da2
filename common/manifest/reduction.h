// How the elements of all ranks become one, and for which element types that has
// a meaning. Pure.
#ifndef LOCKSTEP_COMMON_MANIFEST_REDUCTION_H_
#define LOCKSTEP_COMMON_MANIFEST_REDUCTION_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/manifest/dtype.h"

namespace lockstep {

// Ranks exchange the values: never renumber.
enum class ReduceOp : std::int32_t { kSum = 0, kMin = 1, kMax = 2, kMean = 3 };

inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                          ReduceOp::kMean};

// "sum", "min", "max", "mean"; "an unknown operation" for another number.
absl::string_view ReduceOpName(ReduceOp op);

// Integers and bools have no mean, complex numbers no order, and float8_e8m0fnu,
// which holds nothing but powers of two, neither sum nor mean.
bool IsReducible(DType dtype, ReduceOp op);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MANIFEST_REDUCTION_H_
