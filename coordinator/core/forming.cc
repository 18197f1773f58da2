#include "coordinator/core/forming.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep {

EpochDecision DecideEpoch(const std::vector<std::string>& attending, const EpochRules& rules,
                          std::optional<MonoTime> window_end, MonoTime now) {
  const int count = static_cast<int>(attending.size());
  if (count < rules.min_workers) return {.hold = Hold::kTooFew};
  const MonoTime end = window_end.value_or(now + rules.join_window);
  if (count < rules.max_workers && now < end) {
    return {.hold = Hold::kJoinWindowOpen, .window_end = end};
  }
  const int taken = std::min(count, rules.max_workers);
  return {.members = {attending.begin(), attending.begin() + taken}};
}

std::optional<std::string> FindDisagreement(const std::vector<const WorkerState*>& workers,
                                            ModelComparison& models) {
  for (std::size_t i = 1; i < workers.size(); ++i) {
    const WorkerState& a = *workers.front();
    const WorkerState& b = *workers[i];
    if (auto difference = models.FirstDifference(a.name, a.manifest, b.name, b.manifest)) {
      return difference;
    }
    if (a.transport != b.transport) {
      return absl::StrCat("transport: '", a.transport, "' on ", a.name, ", '", b.transport,
                          "' on ", b.name);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
