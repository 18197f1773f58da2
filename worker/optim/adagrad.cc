#include "worker/optim/adagrad.h"

#include <cmath>
#include <cstddef>

namespace lockstep {

void AdagradStep(const Adagrad& config, std::int64_t step, std::span<const float> grad,
                 float grad_scale, std::span<float> sum, std::span<float> param) {
  const std::size_t n = param.size();
  const float* __restrict g = grad.data();
  float* __restrict s = sum.data();
  float* __restrict p = param.data();
  const auto step_size =
      static_cast<float>(config.lr / (1.0 + static_cast<double>(step - 1) * config.lr_decay));
  const auto eps = static_cast<float>(config.eps);
  const auto decay = static_cast<float>(config.weight_decay);
  const bool decays = config.weight_decay != 0;

  for (std::size_t i = 0; i < n; ++i) {
    const float scaled = g[i] * grad_scale;
    const float d = decays ? scaled + decay * p[i] : scaled;
    const float squares = s[i] + d * d;
    s[i] = squares;
    p[i] = p[i] - step_size * d / (std::sqrt(squares) + eps);
  }
}

}  // namespace lockstep
