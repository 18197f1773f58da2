// The arithmetic of reductions on plain memory, over all ranks at once.
//
// Every rank that reduces the same sources gets the same bytes. Pure;
// thread-compatible.
#ifndef LOCKSTEP_WORKER_COMBINE_COMBINE_H_
#define LOCKSTEP_WORKER_COMBINE_COMBINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/manifest/dtype.h"
#include "common/manifest/reduction.h"

namespace lockstep {

// into[i] = op over ranks of sources[r][i], for `elements` of a reducible `dtype`.
//
// Sum and mean of floating types, and of each component of complex ones: added in
// double in rank order, then rounded once, to nearest; a result that is not a
// number is the dtype's quiet NaN, and one beyond its range is what LibTorch makes of
// it (infinity; 448 in float8_e4m3fn; NaN in the fnuz types). A mean is
// sum(weight * value) / sum(weight), also in double; `weights` (of a mean only) by
// rank, each finite and none below 0, their sum finite and above 0; empty: all count
// alike. A rank of weight 0 is not read.
// Sums of integers wrap; a sum of bools is a logical or.
// Min and max: the element itself of the first rank that has the extreme; NaN wins.
//
// There is at least one source. Memory may be unaligned; `into` may be one of the
// sources, and overlaps no other.
void Reduce(DType dtype, ReduceOp op, std::span<const double> weights,
            std::span<const std::byte* const> sources, std::byte* into, std::int64_t elements);

// Called with sums range by range: in order, without gap, `begin` from 0. What the span
// shows is gone when the call returns.
using ConsumeSums = std::function<void(std::int64_t begin, std::span<const float> sums)>;

// Hands sums[i] = sum over ranks of weights[r] * sources[r][i] to `consume`, in float,
// added in rank order. `dtype` IsTrainable(). A rank of weight 0 is not read. What
// `consume` is handed may be written to any source at once: the range was read.
void WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                 std::span<const float> weights, std::int64_t elements,
                 const ConsumeSums& consume);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COMBINE_COMBINE_H_
