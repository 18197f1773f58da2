// The arithmetic of reductions on plain memory, one rank at a time.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_COMBINE_H_
#define LOCKSTEP_WORKER_TRANSPORT_COMBINE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/manifest/dtype.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Real types of 1 to 8 bytes that the processor computes with: not float16,
// bfloat16, float8 or complex.
bool IsReducible(DType dtype);

// into[i] = op(into[i], from[i]) for `elements` of a reducible `dtype`. Sums of
// integers wrap; a sum of bools is a logical or; NaN wins in min and max. The
// memory may be unaligned; it may not overlap.
void Combine(DType dtype, ReduceOp op, std::byte* into, const std::byte* from,
             std::int64_t elements);

// into[i] = sum over ranks of weights[r] * sources[r][i], added in rank order. A
// rank of weight 0 is not read. `into` may be one of the sources.
void WeightedSum(std::span<const float* const> sources, std::span<const float> weights,
                 float* into, std::int64_t elements);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_COMBINE_H_
