// StepTimes: how long steps took, and the phases of each, as histograms.
//
// A phase lasts from when it is reached to when the next one is. Phases of a step that is not
// taken count for nothing. Pure: time is an argument. The thread that takes steps calls Reach()
// and EndStep(), which do not allocate; any thread may ask.
#ifndef LOCKSTEP_WORKER_TRAINER_STEP_TIMES_H_
#define LOCKSTEP_WORKER_TRAINER_STEP_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "worker/engine/engine_options.h"

namespace lockstep {

// Upper bounds of buckets, in seconds; the last one has none.
inline constexpr std::array kStepTimeBounds = {0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                               0.025,  0.05,   0.1,   0.25,   0.5,   1.0,
                                               2.5,    5.0,    10.0,  30.0,   60.0};
inline constexpr std::size_t kStepPhases = static_cast<std::size_t>(StepPhase::kApplying) + 1;

struct TimeHistogram {
  std::array<std::int64_t, kStepTimeBounds.size() + 1> counts = {};  // by bucket
  double seconds = 0;                                                // the sum

  void Add(absl::Duration time);
};

class StepTimes {
 public:
  struct Totals {
    TimeHistogram steps;  // from kForward to EndStep()
    std::array<TimeHistogram, kStepPhases> phases;
  };

  // The step under way has reached `phase`; kForward begins another one.
  void Reach(StepPhase phase, MonoTime now);
  // It is taken.
  void EndStep(MonoTime now);

  Totals totals() const;

 private:
  // Of the step under way.
  struct Step {
    MonoTime start;
    MonoTime reached;  // when `phase` was
    StepPhase phase = StepPhase::kForward;
    std::array<std::optional<absl::Duration>, kStepPhases> times;  // nothing: not passed
  };
  static void ClosePhase(Step& step, MonoTime now);

  std::optional<Step> step_;  // of the thread that takes it
  mutable Mutex mu_;
  Totals totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_STEP_TIMES_H_
