#include "client/ctl/step_rates.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void StepRates::Look(const v1::WatchJobResponse& state, absl::Time now) {
  std::map<std::string, Seen> workers;
  for (const v1::Worker& worker : state.workers()) {
    Seen seen = {.incarnation = worker.incarnation(), .step = worker.step(), .since = now};
    const auto before = workers_.find(worker.name());
    if (before != workers_.end() && before->second.incarnation == seen.incarnation) {
      const Seen& last = before->second;
      if (last.step == seen.step) {
        seen = last;
      } else if (last.step < seen.step) {
        seen.earlier_step = last.step;
        seen.earlier_since = last.since;
      }
    }
    workers.emplace(worker.name(), seen);
  }
  workers_ = std::move(workers);
}

std::optional<double> StepRates::Of(const std::string& worker, absl::Time now) const {
  const auto it = workers_.find(worker);
  if (it == workers_.end() || !it->second.earlier_step) return std::nullopt;
  const Seen& seen = it->second;
  const absl::Duration took = std::max(seen.since - seen.earlier_since, now - seen.since);
  if (took <= absl::ZeroDuration()) return std::nullopt;
  return static_cast<double>(seen.step - *seen.earlier_step) / absl::ToDoubleSeconds(took);
}

}  // namespace lockstep
