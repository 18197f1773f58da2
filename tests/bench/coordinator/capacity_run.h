// Measures one coordinator with one number of workers. Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_RUN_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_RUN_H_

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/coordinator/capacity_report.h"
#include "tests/bench/coordinator/coordinator_process.h"

namespace lockstep {

struct CapacityCase {
  int workers = 1;
  bool tls = false;
  int workers_per_connection = 100;
  int seconds = 10;       // of heartbeats
  std::string directory;  // exists, empty; takes store, logs, and certificates
  Cores cores;
};

// Says on standard error how far it came. Errors: what went wrong, and in which part; Cancelled:
// `interrupted` became true, which is looked at between the parts.
absl::StatusOr<CapacityResult> RunCapacityCase(const CapacityCase& the_case,
                                               const std::atomic<bool>& interrupted);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_RUN_H_
