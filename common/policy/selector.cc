#include "common/policy/selector.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace lockstep {

absl::StatusOr<BufferSelector> BufferSelector::Compile(const SyncPolicy& policy) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(policy));
  BufferSelector selector;
  for (const std::string& text : policy.allow_list) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(text));
    selector.allow_.push_back(std::move(pattern));
  }
  for (const std::string& text : policy.ignore_list) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(text));
    selector.ignore_.push_back(std::move(pattern));
  }
  return selector;
}

bool BufferSelector::Selects(absl::string_view name) const {
  const auto matches = [&](const Pattern& pattern) { return pattern.Matches(name); };
  const bool allowed = allow_.empty() || std::any_of(allow_.begin(), allow_.end(), matches);
  return allowed && std::none_of(ignore_.begin(), ignore_.end(), matches);
}

}  // namespace lockstep
