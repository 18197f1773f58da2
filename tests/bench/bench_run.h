// One run of the bench: starts the ranks of each system and lets them take turns.
#ifndef LOCKSTEP_TESTS_BENCH_BENCH_RUN_H_
#define LOCKSTEP_TESTS_BENCH_BENCH_RUN_H_

#include <atomic>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench_options.h"

namespace lockstep {

// The report, by MakeReport() or of cost by MakeCostReport(). Progress goes to
// standard error. Everything it started has ended when it returns.
// Errors: Cancelled: `interrupted` became true. Others name the rank.
absl::StatusOr<nlohmann::json> RunBenches(const BenchOptions& options,
                                          const std::atomic<bool>& interrupted);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_BENCH_RUN_H_
