// The update of Adam on one range of the flat space. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAM_H_
#define LOCKSTEP_WORKER_OPTIM_ADAM_H_

#include <cstdint>
#include <span>

#include "worker/optim/optimizer.h"

namespace lockstep {

// One step in place (Kingma & Ba 2015, algorithm 1).
// Shapes: all spans have n >= 0 elements. `step` counts from 1. The gradient
//   used is grad[i] * grad_scale.
void AdamStep(const Adam& config, std::int64_t step, std::span<const float> grad,
              float grad_scale, std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<float> param);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAM_H_
