// Story: one simulated cluster (tests/sim) to which a script's commands happen, and what its
// members tell about that. README.md explains the language. Thread-compatible.
#ifndef LOCKSTEP_TESTS_SCRIPT_STORY_H_
#define LOCKSTEP_TESTS_SCRIPT_STORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tests/golden/command.h"
#include "tests/sim/cluster.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace lockstep::sim {

class Story final {
 public:
  // What the command brought about. A test fails if there is no such command, or a promise of the
  // simulation's checker is broken.
  std::string Run(const std::string& line);

 private:
  absl::Status Do(const Command& command);
  absl::Status Begin(const Command& command);
  absl::Status RunOn(const Command& command);
  absl::Status RunUntil(std::int64_t step, std::int64_t epoch);
  absl::Status OfCoordinator(const Command& command);
  absl::Status OfWorker(const Command& command);
  // Whether all that run are behind `step`, in a whole epoch not before `epoch`.
  bool HasCome(std::int64_t step, std::int64_t epoch) const;
  std::string News();

  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Cluster> cluster_;
  std::size_t told_ = 0;  // lines of the trace
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SCRIPT_STORY_H_
