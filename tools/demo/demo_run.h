// One run of the demo: a cluster on loopback, a training job, and a policy
// change half-way.
#ifndef LOCKSTEP_TOOLS_DEMO_DEMO_RUN_H_
#define LOCKSTEP_TOOLS_DEMO_DEMO_RUN_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

struct DemoOptions {
  std::string out = "out/demo";
  int workers = 2;
  std::string transport = "shm";
  std::int64_t steps = 0;  // 0: one pass over the training images
  int batch = 64;          // images per rank and step

  // Errors: InvalidArgument names the option.
  absl::Status Validate() const;
  // One pass, if `steps` does not say otherwise.
  std::int64_t TotalSteps() const;
};

// Runs it and returns the merged report (run_report.h). Everything it started
// has ended when it returns.
// Errors: Cancelled: `interrupted` became true; others: a process failed, with
//   the end of its log.
absl::StatusOr<nlohmann::json> RunDemo(const DemoOptions& options,
                                       const std::atomic<bool>& interrupted);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DEMO_DEMO_RUN_H_
