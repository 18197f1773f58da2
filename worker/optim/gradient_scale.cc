#include "worker/optim/gradient_scale.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kClippingEpsilon = 1e-6;

}  // namespace

GradientScale ScaleOf(double squared_norm, std::int64_t samples, double loss_scale,
                      double max_norm) {
  const double averaging = 1.0 / (static_cast<double>(samples) * loss_scale);
  const double norm = std::sqrt(squared_norm) * averaging;
  const double clipping = max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + kClippingEpsilon));
  return {.factor = static_cast<float>(averaging * clipping), .norm = norm};
}

}  // namespace lockstep
