// A reduction written down again, one element at a time and without LibTorch: what
// tests compare the real one with, bit for bit. And values that are hard to add.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_COMBINE_NAIVE_REDUCE_H_
#define LOCKSTEP_WORKER_COMBINE_NAIVE_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/manifest/dtype.h"
#include "common/manifest/reduction.h"

namespace lockstep {

using Bytes = std::vector<std::byte>;

inline constexpr DType kAllDTypes[] = {
    DType::kBool,         DType::kInt8,       DType::kInt16,          DType::kInt32,
    DType::kInt64,        DType::kUint8,      DType::kUint16,         DType::kUint32,
    DType::kUint64,       DType::kFloat16,    DType::kBfloat16,       DType::kFloat32,
    DType::kFloat64,      DType::kComplex32,  DType::kComplex64,      DType::kComplex128,
    DType::kFloat8E4m3fn, DType::kFloat8E5m2, DType::kFloat8E4m3fnuz, DType::kFloat8E5m2fnuz,
    DType::kFloat8E8m0fnu};

// What Reduce() gives for the ranks' elements. The pair must be reducible.
Bytes NaiveReduce(DType dtype, ReduceOp op, const std::vector<double>& weights,
                  const std::vector<Bytes>& sources);

// Elements of which some are drawn from all bits, NaN and infinities among them, and
// some are such that the order of a sum and the place of its rounding show.
void FillHard(DType dtype, std::uint64_t seed, std::span<std::byte> into);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COMBINE_NAIVE_REDUCE_H_
