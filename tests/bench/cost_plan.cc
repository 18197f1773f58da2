#include "tests/bench/cost_plan.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElementBytes = 4;
// Of a process with the libraries loaded, apart from pages that all share.
constexpr std::int64_t kProcessBytes = 150 << 20;

}  // namespace

std::vector<CostPoint> CostPoints(bool tiny) {
  const std::vector<std::int64_t> sides =
      tiny ? std::vector<std::int64_t>{16, 32}
           : std::vector<std::int64_t>{1000, 2000, 4000, 8000, 10000};
  const std::vector<int> worlds = tiny ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 4, 8};
  std::vector<CostPoint> points;
  for (const std::int64_t side : sides) {
    for (const int ranks : worlds) points.push_back({.side = side, .ranks = ranks});
  }
  return points;
}

BenchSizes SizesOf(const CostPoint& point) { return {.matrices = 1, .side = point.side}; }

std::int64_t StepBytes(const CostPoint& point) {
  const std::int64_t flat_bytes = point.elements() * kElementBytes;
  const std::int64_t shared_and_state = 3 * flat_bytes;
  return shared_and_state + point.ranks * (2 * flat_bytes + kProcessBytes);
}

std::int64_t StepAndProbeBytes(const CostPoint& point) {
  const std::int64_t flat_bytes = point.elements() * kElementBytes;
  const std::int64_t each = 3 * flat_bytes + point.ranks * (flat_bytes + kProcessBytes);
  return 2 * each;
}

CostFit FitOf(const CostPoint& point, std::int64_t available_bytes) {
  const std::int64_t usable = available_bytes / 10 * 9;
  if (StepBytes(point) > usable) return CostFit::kNothing;
  return StepAndProbeBytes(point) > usable ? CostFit::kStepAlone : CostFit::kStepAndProbe;
}

}  // namespace lockstep
