// From the gradient that ranks have summed to the one the update uses: averaged
// over samples, freed of the scale of the loss and clipped by its norm, in one
// factor. Pure functions.
#ifndef LOCKSTEP_WORKER_OPTIM_GRADIENT_SCALE_H_
#define LOCKSTEP_WORKER_OPTIM_GRADIENT_SCALE_H_

#include <cstdint>

namespace lockstep {

struct GradientScale {
  float factor = 1;  // of each element of the sum
  double norm = 0;   // of the averaged gradient of the unscaled loss, before clipping
};

// `squared_norm` of the sum over `samples` > 0 of a loss that was multiplied by
// `loss_scale` > 0. A `max_norm` of 0 clips nothing;
// else the gradient is multiplied by min(1, max_norm / (norm + 1e-6)), which is
// what torch's clip_grad_norm_ does.
GradientScale ScaleOf(double squared_norm, std::int64_t samples, double loss_scale,
                      double max_norm);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_GRADIENT_SCALE_H_
