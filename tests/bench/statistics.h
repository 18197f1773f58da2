// What a list of measured times says. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_STATISTICS_H_
#define LOCKSTEP_TESTS_BENCH_STATISTICS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Summary {
  double best = 0;
  double median = 0;
  double p99 = 0;
};

// The smallest value that at least `share` of `values` do not exceed (nearest
// rank); 0 of no values. `share` is above 0 and at most 1.
double Quantile(std::vector<double> values, double share);

// Of no values: zeros. The median of an even number is the mean of the middle two.
Summary Summarize(std::span<const double> values);

// numerators[i] / denominators[i], as far as both go and are above 0.
std::vector<double> PairedRatios(std::span<const double> numerators,
                                 std::span<const double> denominators);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STATISTICS_H_
