// How the cost of a step grows: which sizes and numbers of ranks are measured, and
// what they need in memory. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_COST_PLAN_H_
#define LOCKSTEP_TESTS_BENCH_COST_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/bench_options.h"

namespace lockstep {

// One AdamW step of a float32 matrix of `side` x `side`.
struct CostPoint {
  std::int64_t side = 0;
  int ranks = 0;

  std::int64_t elements() const { return side * side; }
  friend bool operator==(const CostPoint&, const CostPoint&) = default;
};

// Sizes grow slowest. `tiny`: two sizes, one and two ranks.
std::vector<CostPoint> CostPoints(bool tiny);

BenchSizes SizesOf(const CostPoint& point);

// At its most, all ranks together: while they join, each has the parameters of its
// own module beside those that it shares, its gradients and its part of the state.
std::int64_t StepBytes(const CostPoint& point);
// Of the bandwidth probe beside a step whose ranks have joined.
std::int64_t StepAndProbeBytes(const CostPoint& point);

// What of a point fits into so much memory, of which a tenth is left alone.
enum class CostFit { kNothing, kStepAlone, kStepAndProbe };
CostFit FitOf(const CostPoint& point, std::int64_t available_bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COST_PLAN_H_
