#include "common/policy/schedule.h"

#include <algorithm>
#include <variant>

namespace lockstep {

bool IsDueEvery(std::int64_t period, std::int64_t step) {
  return step > 0 && period > 0 && step % period == 0;
}

Schedule InEffect(bool broadcast_buffers, const Schedule& schedule) {
  if (broadcast_buffers) return schedule;
  return {.at_start = schedule.at_start, .every_forwards = 0};
}

bool IsDue(bool broadcast_buffers, const Schedule& schedule, Moment moment, std::int64_t count) {
  const Schedule in_effect = InEffect(broadcast_buffers, schedule);
  switch (moment) {
    case Moment::kStart:
      return in_effect.at_start;
    case Moment::kForward:
      return IsDueEvery(in_effect.every_forwards, count);
    case Moment::kStep:
      return IsDueEvery(in_effect.every_steps, count);
    case Moment::kEvaluation:
      return in_effect.before_evaluation;
    case Moment::kCheckpoint:
      return in_effect.before_checkpoint;
  }
  return false;
}

ResolvedRoot ResolveRoot(const Root& root, const std::vector<std::string>& members) {
  if (const auto* by_rank = std::get_if<RootRank>(&root)) {
    const bool is_member =
        by_rank->rank >= 0 && by_rank->rank < static_cast<std::int64_t>(members.size());
    if (!is_member) return {.rank = 0, .fallback = true};
    return {.rank = static_cast<int>(by_rank->rank)};
  }
  if (const auto* by_name = std::get_if<RootWorker>(&root)) {
    const auto found = std::find(members.begin(), members.end(), by_name->worker);
    if (found == members.end()) return {.rank = 0, .fallback = true};
    return {.rank = static_cast<int>(found - members.begin())};
  }
  return {.rank = 0};
}

}  // namespace lockstep
