#include "worker/optim/sgd.h"

#include <cstddef>

namespace lockstep {

void SgdStep(const Sgd& config, MomentumState state, std::span<const float> grad,
             float grad_scale, std::span<float> momentum, std::span<float> param) {
  const std::size_t n = param.size();
  const float* __restrict g = grad.data();
  float* __restrict m = momentum.data();
  float* __restrict p = param.data();
  const auto lr = static_cast<float>(config.lr);
  const auto mu = static_cast<float>(config.momentum);
  const auto fresh = static_cast<float>(1.0 - config.dampening);
  const auto decay = static_cast<float>(config.weight_decay);
  // The conditions are the same for all elements: the compiler takes them out
  // of the loops. Decay 0 is left out rather than multiplied, as torch does.
  const bool decays = config.weight_decay != 0;

  if (config.momentum == 0) {
    for (std::size_t i = 0; i < n; ++i) {
      const float scaled = g[i] * grad_scale;
      const float d = decays ? scaled + decay * p[i] : scaled;
      p[i] = p[i] - lr * d;
    }
    return;
  }
  const bool is_new = state == MomentumState::kNew;
  const bool nesterov = config.nesterov;
  for (std::size_t i = 0; i < n; ++i) {
    const float scaled = g[i] * grad_scale;
    const float d = decays ? scaled + decay * p[i] : scaled;
    const float velocity = is_new ? d : m[i] * mu + d * fresh;
    m[i] = velocity;
    p[i] = p[i] - lr * (nesterov ? d + velocity * mu : velocity);
  }
}

}  // namespace lockstep
