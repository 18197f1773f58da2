// A run of chaos: rounds over shared memory, then over Gloo, until its time is over.
#ifndef LOCKSTEP_TESTS_CHAOS_CHAOS_RUN_H_
#define LOCKSTEP_TESTS_CHAOS_CHAOS_RUN_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/faults.h"

namespace lockstep {

struct ChaosOptions {
  std::string out = "out/chaos";
  double minutes = 10;
  std::uint64_t seed = 1;

  // Errors: InvalidArgument names the option.
  absl::Status Validate() const;
};

// Sums over all rounds that were well; faults and leaks also of one that failed.
struct ChaosTotals {
  int rounds = 0;
  std::int64_t steps = 0;
  std::map<Fault, int> faults;
  int epochs = 0;
  // Without a committed step, by transport.
  std::map<std::string, std::map<Fault, double>> longest_stall_seconds;
  int leaked_segments = 0;
};

nlohmann::json ToJson(const ChaosOptions& options, const ChaosTotals& totals);

// Tells on standard error what it does. `totals` is filled also where it fails.
// Errors: Cancelled: `interrupted` became true; others: what was broken, and where its logs are.
absl::Status RunChaos(const ChaosOptions& options, const std::atomic<bool>& interrupted,
                      ChaosTotals* totals);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_CHAOS_RUN_H_
