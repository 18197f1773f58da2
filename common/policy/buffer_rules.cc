#include "common/policy/buffer_rules.h"

#include <cstddef>
#include <utility>

#include "common/base/status_macros.h"

namespace lockstep {
BufferRules::Index::Index(const std::vector<Pattern>& patterns) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const int index = static_cast<int>(i);
    if (patterns[i].is_name()) {
      names_.emplace(patterns[i].text(), index);
    } else {
      others_.emplace_back(index, patterns[i]);
    }
  }
}

int BufferRules::Index::FirstMatch(absl::string_view name) const {
  const auto named = names_.find(name);
  const int of_names = named == names_.end() ? -1 : named->second;
  for (const auto& [index, pattern] : others_) {
    if (of_names >= 0 && of_names < index) break;
    if (pattern.Matches(name)) return index;
  }
  return of_names;
}

absl::StatusOr<BufferRules> BufferRules::Compile(const SyncPolicy& policy) {
  BufferRules compiled;
  LOCKSTEP_ASSIGN_OR_RETURN(compiled.patterns_, CompilePatterns(policy));
  compiled.allow_ = Index(compiled.patterns_.allow_list);
  compiled.ignore_ = Index(compiled.patterns_.ignore_list);
  compiled.rules_ = Index(compiled.patterns_.rules);
  for (const SyncRule& rule : policy.rules) {
    compiled.treatments_.push_back({.operation = rule.operation.value_or(policy.operation),
                                    .root = rule.root.value_or(policy.root),
                                    .schedule = rule.schedule.value_or(policy.schedule)});
  }
  compiled.treatments_.push_back(
      {.operation = policy.operation, .root = policy.root, .schedule = policy.schedule});
  return compiled;
}

BufferMatch BufferRules::Find(absl::string_view name) const {
  if (const int ignored = ignore_.FirstMatch(name); ignored >= 0) {
    return {.why = BufferMatch::Why::kIgnored, .pattern = ignored};
  }
  if (!patterns_.allow_list.empty() && allow_.FirstMatch(name) < 0) {
    return {.why = BufferMatch::Why::kNotAllowed};
  }
  const int rule = rules_.FirstMatch(name);
  return {.treatment = rule >= 0 ? rule : static_cast<int>(patterns_.rules.size())};
}

bool BufferRules::Synchronises(absl::string_view name) const {
  const int treatment = Find(name).treatment;
  return treatment >= 0 &&
         treatments_[static_cast<std::size_t>(treatment)].operation != Operation::kNone;
}

}  // namespace lockstep
