// StepRates: how fast workers step, from looks at a job. Thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_STEP_RATES_H_
#define LOCKSTEP_CLIENT_CTL_STEP_RATES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

class StepRates {
 public:
  // Times do not go back.
  void Look(const v1::WatchJobResponse& state, absl::Time now);

  // Steps a second between the last two looks that saw the worker's step change; less, once
  // the next change is overdue. Nothing before there were two, or after a step went back (an
  // epoch began at a checkpoint) or the worker was started again.
  std::optional<double> Of(const std::string& worker, absl::Time now) const;

 private:
  struct Seen {
    std::int64_t incarnation = 0;
    std::int64_t step = 0;
    absl::Time since;  // first look at `step`
    std::optional<std::int64_t> earlier_step;
    absl::Time earlier_since;
  };
  std::map<std::string, Seen> workers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_STEP_RATES_H_
