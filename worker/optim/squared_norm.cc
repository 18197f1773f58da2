#include "worker/optim/squared_norm.h"

#include <algorithm>

#include "worker/numeric/vector_loop.h"

namespace lockstep {
namespace {

template <std::size_t kLanes>
LOCKSTEP_VECTORIZE void AddRows(const float* values, std::size_t rows,
                                std::array<double, kLanes>& lanes) {
  std::array<double, kLanes> sums = lanes;
  for (std::size_t row = 0; row < rows; ++row, values += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[lane];
      sums[lane] += value * value;
    }
  }
  lanes = sums;
}

}  // namespace

void SquaredNorm::Add(std::span<const float> values) {
  const auto add_one_by_one = [&](std::size_t count) {
    for (const float each : values.first(count)) {
      const double value = each;
      lanes_[next_lane_] += value * value;
      next_lane_ = (next_lane_ + 1) % kLanes;
    }
    values = values.subspan(count);
  };
  // To the first lane, row by row, and what is left.
  add_one_by_one(std::min(values.size(), (kLanes - next_lane_) % kLanes));
  const std::size_t rows = next_lane_ == 0 ? values.size() / kLanes : 0;
  AddRows(values.data(), rows, lanes_);
  values = values.subspan(rows * kLanes);
  add_one_by_one(values.size());
}

double SquaredNorm::sum() const {
  double sum = 0;
  for (const double lane : lanes_) sum += lane;
  return sum;
}

}  // namespace lockstep
