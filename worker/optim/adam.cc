#include "worker/optim/adam.h"

#include <cmath>
#include <cstddef>

namespace lockstep {

void AdamStep(const Adam& config, std::int64_t step, std::span<const float> grad,
              float grad_scale, std::span<float> exp_avg, std::span<float> exp_avg_sq,
              std::span<float> param) {
  const std::size_t n = param.size();
  const float* __restrict g = grad.data();
  float* __restrict m = exp_avg.data();
  float* __restrict v = exp_avg_sq.data();
  float* __restrict p = param.data();
  const double correction1 = 1.0 - std::pow(config.beta1, static_cast<double>(step));
  const double correction2 = 1.0 - std::pow(config.beta2, static_cast<double>(step));
  const auto step_size = static_cast<float>(config.lr / correction1);
  const auto root_correction2 = static_cast<float>(std::sqrt(correction2));
  const auto beta1 = static_cast<float>(config.beta1);
  const auto beta2 = static_cast<float>(config.beta2);
  const auto fresh1 = static_cast<float>(1.0 - config.beta1);
  const auto fresh2 = static_cast<float>(1.0 - config.beta2);
  const auto eps = static_cast<float>(config.eps);
  const auto decay = static_cast<float>(config.weight_decay);
  const bool decays = config.weight_decay != 0;

  for (std::size_t i = 0; i < n; ++i) {
    const float scaled = g[i] * grad_scale;
    const float d = decays ? scaled + decay * p[i] : scaled;
    const float mean = m[i] * beta1 + d * fresh1;
    const float square = v[i] * beta2 + fresh2 * d * d;
    m[i] = mean;
    v[i] = square;
    const float denominator = std::sqrt(square) / root_correction2 + eps;
    p[i] = p[i] - step_size * mean / denominator;
  }
}

}  // namespace lockstep
