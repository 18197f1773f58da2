#include "worker/optim/squared_norm.h"

#include <cstddef>

namespace lockstep {
namespace {

// Independent sums, so that one addition need not wait for the one before it.
constexpr std::size_t kLanes = 16;

}  // namespace

double SquaredNorm(std::span<const float> values) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < values.size(); ++i, ++lane) {
    const double value = values[i];
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace lockstep
