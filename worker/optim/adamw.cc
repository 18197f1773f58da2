#include "worker/optim/adamw.h"

#include <cstddef>

#include "worker/optim/adam_moments.h"

namespace lockstep {

void AdamWStep(const AdamW& config, std::int64_t step, std::span<const float> grad,
               float grad_scale, std::span<float> exp_avg, std::span<float> exp_avg_sq,
               std::span<float> param) {
  const std::size_t n = param.size();
  const float* __restrict g = grad.data();
  float* __restrict m = exp_avg.data();
  float* __restrict v = exp_avg_sq.data();
  float* __restrict p = param.data();
  const AdamMoments moments(config, step);
  // 1 without decay, which changes no bit.
  const auto kept = static_cast<float>(1.0 - config.lr * config.weight_decay);

  for (std::size_t i = 0; i < n; ++i) {
    const float d = g[i] * grad_scale;
    p[i] = p[i] * kept - moments.Move(d, m[i], v[i]);
  }
}

}  // namespace lockstep
