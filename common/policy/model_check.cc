#include "common/policy/model_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/near_names.h"

namespace lockstep {
namespace {

// Patterns or buffers that one message describes; it counts the others.
constexpr int kMaxDescribed = 5;
constexpr int kMaxNearNames = 3;

// A pattern and the field it stands in.
struct Placed {
  std::string field;
  std::string pattern;
};

std::vector<Placed> PatternsOf(const SyncPolicy& policy) {
  std::vector<Placed> all;
  for (std::size_t i = 0; i < policy.allow_list.size(); ++i) {
    all.push_back({absl::StrCat("allow_list[", i, "]"), policy.allow_list[i]});
  }
  for (std::size_t i = 0; i < policy.ignore_list.size(); ++i) {
    all.push_back({absl::StrCat("ignore_list[", i, "]"), policy.ignore_list[i]});
  }
  for (std::size_t i = 0; i < policy.rules.size(); ++i) {
    all.push_back({absl::StrCat("rules[", i, "].pattern"), policy.rules[i].pattern});
  }
  return all;
}

std::string DescribeUnmatched(const Placed& placed, const std::vector<absl::string_view>& names) {
  const std::vector<std::string> near = NearNames(placed.pattern, names, kMaxNearNames);
  return absl::StrCat(placed.field, ": the pattern ", Quoted(placed.pattern),
                      " matches no buffer", near.empty() ? "" : "; near names: ",
                      absl::StrJoin(near, ", "));
}

// What gave a buffer its operation.
std::string Decider(const SyncPolicy& policy, int treatment) {
  if (treatment >= static_cast<int>(policy.rules.size())) return "the policy's own operation";
  return absl::StrCat("rules[", treatment, "] ", Quoted(policy.rules[treatment].pattern));
}

}  // namespace

absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest) {
  std::vector<absl::string_view> names;
  names.reserve(manifest.buffers.size());
  for (const TensorSpec& buffer : manifest.buffers) names.push_back(buffer.name);
  std::vector<std::string> described;
  int undescribed = 0;
  for (const Placed& placed : PatternsOf(policy)) {
    const absl::StatusOr<Pattern> pattern = Pattern::Parse(placed.pattern);
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(placed.field, ": ", pattern.status().message()));
    }
    if (std::any_of(names.begin(), names.end(),
                    [&](absl::string_view name) { return pattern->Matches(name); })) {
      continue;
    }
    if (described.size() < kMaxDescribed) {
      described.push_back(DescribeUnmatched(placed, names));
    } else {
      ++undescribed;
    }
  }
  if (described.empty()) return absl::OkStatus();
  if (undescribed > 0) {
    described.push_back(absl::StrCat(undescribed, " more patterns match no buffer"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(described, ". "), ". The model has ", names.size(),
                   " buffers; correct the patterns, or allow unmatched ones"));
}

absl::Status CheckOperations(const SyncPolicy& policy, const Manifest& manifest) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(policy));
  std::vector<std::string> described;
  int undescribed = 0;
  for (const TensorSpec& buffer : manifest.buffers) {
    const int treatment = rules.Find(buffer.name).treatment;
    if (treatment < 0 || buffer.dtype == DType::kUnspecified) continue;
    const Operation operation = rules.treatments()[treatment].operation;
    if (IsDefined(operation, buffer.dtype)) continue;
    if (described.size() < kMaxDescribed) {
      described.push_back(absl::StrCat("buffer '", buffer.name, "' is ", DTypeName(buffer.dtype),
                                       ", which has no ", OperationName(operation), " (",
                                       Decider(policy, treatment), ")"));
    } else {
      ++undescribed;
    }
  }
  if (described.empty()) return absl::OkStatus();
  if (undescribed > 0) described.push_back(absl::StrCat("and ", undescribed, " more"));
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(described, "; "),
      ". Put a rule before it that gives these buffers broadcast, max or none, or ignore them"));
}

}  // namespace lockstep
