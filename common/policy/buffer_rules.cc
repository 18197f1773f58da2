#include "common/policy/buffer_rules.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace lockstep {
namespace {

absl::StatusOr<std::vector<Pattern>> ParseAll(const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(text));
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

// The index of the first pattern that matches, or -1.
int FirstMatch(const std::vector<Pattern>& patterns, absl::string_view name) {
  const auto found = std::find_if(patterns.begin(), patterns.end(),
                                  [&](const Pattern& pattern) { return pattern.Matches(name); });
  return found == patterns.end() ? -1 : static_cast<int>(found - patterns.begin());
}

}  // namespace

absl::StatusOr<BufferRules> BufferRules::Compile(const SyncPolicy& policy) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(policy));
  BufferRules compiled;
  LOCKSTEP_ASSIGN_OR_RETURN(compiled.allow_, ParseAll(policy.allow_list));
  LOCKSTEP_ASSIGN_OR_RETURN(compiled.ignore_, ParseAll(policy.ignore_list));
  for (const SyncRule& rule : policy.rules) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(rule.pattern));
    compiled.rules_.push_back(std::move(pattern));
    compiled.treatments_.push_back({.operation = rule.operation.value_or(policy.operation),
                                    .root = rule.root.value_or(policy.root),
                                    .schedule = rule.schedule.value_or(policy.schedule)});
  }
  compiled.treatments_.push_back(
      {.operation = policy.operation, .root = policy.root, .schedule = policy.schedule});
  return compiled;
}

BufferMatch BufferRules::Find(absl::string_view name) const {
  if (const int ignored = FirstMatch(ignore_, name); ignored >= 0) {
    return {.why = BufferMatch::Why::kIgnored, .pattern = ignored};
  }
  if (!allow_.empty() && FirstMatch(allow_, name) < 0) {
    return {.why = BufferMatch::Why::kNotAllowed};
  }
  const int rule = FirstMatch(rules_, name);
  return {.treatment = rule >= 0 ? rule : static_cast<int>(rules_.size())};
}

}  // namespace lockstep
