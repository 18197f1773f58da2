// Simulation: one run of a whole cluster from one seed: the real coordinator state machine, the
// real attendance and the real engines, on simulated time, networks, disk and failures.
//
//   faults, at any moment  -->  all is healed  -->  the job must get on
//
// Used by one thread; several may run at once.
#ifndef LOCKSTEP_TESTS_SIM_SIMULATION_H_
#define LOCKSTEP_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::sim {

// A rule of the product that a run leaves out, to show that its absence is found.
enum class Without {
  kNothing,
  kCommitPoint,  // ranks do not wait for each other before they update
  kBuddy,        // buddies get no sums
  kFencing,      // what comes from old epochs is taken
  kAgreement,    // each rank follows its own view of the control log
};
std::optional<Without> WithoutOf(absl::string_view name);  // "commit-point", ...

struct RunOptions {
  std::uint64_t seed = 1;
  Without without = Without::kNothing;
  bool live_trace = false;  // printed to stderr as it goes
};

struct RunResult {
  std::string violation;  // "CHECKER: what is wrong"; empty: none
  std::uint64_t digest = 0;
  std::vector<std::string> trace;
  std::string cluster;  // what it was, in words
  // What happened in it.
  std::int64_t steps = 0;      // taken
  std::int64_t epochs = 0;     // of which training began
  std::int64_t faults = 0;
  std::int64_t restores = 0;   // began from nothing, after a loss that is allowed
  double virtual_seconds = 0;
};

RunResult RunSimulation(const RunOptions& options);

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_SIMULATION_H_
