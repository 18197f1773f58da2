#include "common/policy/schedule.h"

#include <algorithm>
#include <cstddef>
#include <variant>

namespace lockstep {
namespace {

bool IsMultiple(std::int64_t count, std::int64_t period) {
  return count > 0 && period > 0 && count % period == 0;
}

}  // namespace

bool BufferSyncDueAtStart(const SyncPolicy& policy) { return policy.schedule.at_start; }

bool BufferSyncDueBeforeForward(const SyncPolicy& policy, std::int64_t forwards) {
  return policy.broadcast_buffers && IsMultiple(forwards, policy.schedule.every_forwards);
}

bool BufferSyncDueAfterStep(const SyncPolicy& policy, std::int64_t step) {
  return policy.broadcast_buffers && IsMultiple(step, policy.schedule.every_steps);
}

bool BufferSyncDueBeforeEvaluation(const SyncPolicy& policy) {
  return policy.broadcast_buffers && policy.schedule.before_evaluation;
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
