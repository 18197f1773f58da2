#include "worker/trainer/step_times.h"

#include <algorithm>

#include "absl/time/time.h"

namespace lockstep {

void TimeHistogram::Add(absl::Duration time) {
  const double value = absl::ToDoubleSeconds(time);
  const auto bound = std::lower_bound(kStepTimeBounds.begin(), kStepTimeBounds.end(), value);
  ++counts[static_cast<std::size_t>(bound - kStepTimeBounds.begin())];
  seconds += value;
}

void StepTimes::ClosePhase(Step& step, MonoTime now) {
  std::optional<absl::Duration>& time = step.times[static_cast<std::size_t>(step.phase)];
  time = time.value_or(absl::ZeroDuration()) + (now - step.reached);
}

void StepTimes::Reach(StepPhase phase, MonoTime now) {
  if (phase == StepPhase::kForward) {
    step_ = Step{.start = now, .reached = now};
    return;
  }
  if (!step_.has_value()) return;
  ClosePhase(*step_, now);
  step_->phase = phase;
  step_->reached = now;
}

void StepTimes::EndStep(MonoTime now) {
  if (!step_.has_value()) return;
  ClosePhase(*step_, now);
  {
    MutexLock lock(&mu_);
    totals_.steps.Add(now - step_->start);
    for (std::size_t i = 0; i < kStepPhases; ++i) {
      if (step_->times[i].has_value()) totals_.phases[i].Add(*step_->times[i]);
    }
  }
  step_.reset();
}

StepTimes::Totals StepTimes::totals() const {
  MutexLock lock(&mu_);
  return totals_;
}

}  // namespace lockstep
