// The update of SGD on one range of the flat space. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_SGD_H_
#define LOCKSTEP_WORKER_OPTIM_SGD_H_

#include <span>

#include "worker/optim/optimizer.h"

namespace lockstep {

enum class MomentumState { kNew, kHeld };

// One step in place (Sutskever et al. 2013, in torch's variant).
// Shapes: `grad`, `param`: n >= 0 elements each; `momentum`: n, or none if
//   config.momentum is 0. With kNew the momentum becomes the gradient,
//   undampened. The gradient used is grad[i] * grad_scale.
void SgdStep(const Sgd& config, MomentumState state, std::span<const float> grad,
             float grad_scale, std::span<float> momentum, std::span<float> param);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_SGD_H_
