// The largest magnitude in a range, which also tells whether all of it is finite.
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_NUMERIC_MAGNITUDE_H_
#define LOCKSTEP_WORKER_NUMERIC_MAGNITUDE_H_

#include <cstddef>
#include <cstdint>

#include "common/manifest/dtype.h"

namespace lockstep {

// Of `elements` of a type that IsTrainable(); 0 if there are none. Infinity if one of
// them is infinite or no number.
float LargestMagnitude(DType dtype, const std::byte* values, std::int64_t elements);

// The same, and copies them in the same pass. The ranges do not overlap.
float CopyAndFindLargest(DType dtype, const std::byte* from, std::byte* to,
                         std::int64_t elements);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_NUMERIC_MAGNITUDE_H_
