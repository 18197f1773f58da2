// What was measured of a coordinator, as a table and as JSON. Pure.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_REPORT_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace lockstep {

// One case. Times are in seconds of the clock, unless they are named CPU: those are the
// coordinator's.
struct CapacityResult {
  int workers = 0;
  bool tls = false;
  double welcomed_seconds = 0;  // from the first Hello until the last Welcome
  double epoch_seconds = 0;     // until the last Start
  double epoch_cpu_seconds = 0;
  double heartbeats_per_second = 0;
  double heartbeat_p99_ms = 0;
  double heartbeats_cpu_share = 0;      // of one core
  double policy_fanout_seconds = 0;     // until the last NewEntries
  double policy_applied_seconds = 0;    // until the coordinator shows that all applied it
  std::int64_t idle_bytes = 0;          // resident, before the first Hello
  std::int64_t resident_bytes = 0;      // when all had Start
  std::int64_t peak_bytes = 0;          // of the whole case, before the restart
  double restart_seconds = 0;           // from the kill until GetJob is answered
  double reattended_seconds = 0;        // until all workers take part again

  double joins_per_second() const { return workers / welcomed_seconds; }
  std::int64_t bytes_per_worker() const { return (resident_bytes - idle_bytes) / workers; }
};

// A list with an object for each case.
nlohmann::json CapacityJson(const std::vector<CapacityResult>& results);

// For people.
std::string CapacityText(const std::vector<CapacityResult>& results);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_CAPACITY_REPORT_H_
