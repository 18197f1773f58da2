// LibTorch's element types in the words of a manifest.
#ifndef LOCKSTEP_WORKER_TORCH_SCALAR_TYPES_H_
#define LOCKSTEP_WORKER_TORCH_SCALAR_TYPES_H_

#include "c10/core/ScalarType.h"
#include "common/manifest/dtype.h"

namespace lockstep {

// kUnspecified for types that a manifest has no word for (quantized, packed).
DType FromScalarType(c10::ScalarType type);

// Of a type that IsTrainable().
c10::ScalarType ToScalarType(DType dtype);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_SCALAR_TYPES_H_
