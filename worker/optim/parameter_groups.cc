#include "worker/optim/parameter_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/near_names.h"
#include "common/policy/pattern.h"

namespace lockstep {
namespace {

// Patterns that one message describes; it counts the others.
constexpr int kMaxDescribed = 5;
constexpr int kMaxNearNames = 3;

absl::StatusOr<std::vector<Pattern>> PatternsOf(const OptimizerConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(config));
  std::vector<Pattern> patterns;
  for (const ParameterGroup& group : GroupsOf(config)) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(group.pattern));
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

absl::Status CheckMatch(const std::vector<Pattern>& patterns, const Manifest& manifest) {
  std::vector<absl::string_view> names;
  names.reserve(manifest.parameters.size());
  for (const ParameterSpec& parameter : manifest.parameters) {
    names.push_back(parameter.tensor.name);
  }
  std::vector<std::string> described;
  int undescribed = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const Pattern& pattern = patterns[i];
    if (std::any_of(names.begin(), names.end(),
                    [&](absl::string_view name) { return pattern.Matches(name); })) {
      continue;
    }
    if (described.size() == kMaxDescribed) {
      ++undescribed;
      continue;
    }
    const std::vector<std::string> near = NearNames(pattern.text(), names, kMaxNearNames);
    described.push_back(absl::StrCat("the optimizer's groups[", i, "].pattern ",
                                     Quoted(pattern.text()), " matches no parameter",
                                     near.empty() ? "" : "; near names: ",
                                     absl::StrJoin(near, ", ")));
  }
  if (described.empty()) return absl::OkStatus();
  if (undescribed > 0) {
    described.push_back(absl::StrCat(undescribed, " more patterns match no parameter"));
  }
  return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(described, ". "),
                                                 ". The model has ", names.size(),
                                                 " parameters; correct the patterns, or leave "
                                                 "their groups out"));
}

// The first group that matches `name`; kNoGroup: none.
int FindGroup(const std::vector<Pattern>& patterns, absl::string_view name) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i].Matches(name)) return static_cast<int>(i);
  }
  return kNoGroup;
}

}  // namespace

absl::Status CheckGroupsMatch(const OptimizerConfig& config, const Manifest& manifest) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Pattern> patterns, PatternsOf(config));
  return CheckMatch(patterns, manifest);
}

absl::StatusOr<std::vector<GroupRange>> GroupRangesOf(const OptimizerConfig& config,
                                                      const Manifest& manifest,
                                                      const ShardPlan& plan, int rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Pattern> patterns, PatternsOf(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckMatch(patterns, manifest));
  const Shard& shard = plan.shards[rank];
  std::vector<GroupRange> ranges;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const bool is_last = i + 1 == plan.placements.size();
    const std::int64_t end = is_last ? plan.flat_elements : plan.placements[i + 1].offset;
    const GroupRange range = {
        .begin = std::max(plan.placements[i].offset, shard.begin) - shard.begin,
        .end = std::min(end, shard.end) - shard.begin,
        .group = FindGroup(patterns, plan.placements[i].name)};
    if (range.begin >= range.end) continue;
    if (!ranges.empty() && ranges.back().group == range.group) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace lockstep
