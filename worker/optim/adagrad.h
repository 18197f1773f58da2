// The update of Adagrad on one range of the flat space. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_
#define LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_

#include <cstdint>
#include <span>

#include "worker/optim/optimizer.h"

namespace lockstep {

// One step in place (Duchi et al. 2011, with the diagonal of the matrix).
// Shapes: all spans have n >= 0 elements. `step` counts from 1. The gradient
//   used is grad[i] * grad_scale.
void AdagradStep(const Adagrad& config, std::int64_t step, std::span<const float> grad,
                 float grad_scale, std::span<float> sum, std::span<float> param);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_
