#include "worker/optim/adam.h"

#include <cstddef>

#include "worker/optim/adam_moments.h"

namespace lockstep {

void AdamStep(const Adam& config, std::int64_t step, std::span<const float> grad,
              float grad_scale, std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<float> param) {
  const std::size_t n = param.size();
  const float* __restrict g = grad.data();
  float* __restrict m = exp_avg.data();
  float* __restrict v = exp_avg_sq.data();
  float* __restrict p = param.data();
  const AdamMoments moments(config, step);
  const auto decay = static_cast<float>(config.weight_decay);
  const bool decays = config.weight_decay != 0;

  for (std::size_t i = 0; i < n; ++i) {
    const float scaled = g[i] * grad_scale;
    const float d = decays ? scaled + decay * p[i] : scaled;
    p[i] = p[i] - moments.Move(d, m[i], v[i]);
  }
}

}  // namespace lockstep
