#include "common/policy/model_check.h"

#include <algorithm>
#include <set>
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
  const Pattern* pattern;
};

std::vector<Placed> PatternsOf(const PolicyPatterns& patterns) {
  std::vector<Placed> all;
  for (std::size_t i = 0; i < patterns.allow_list.size(); ++i) {
    all.push_back({absl::StrCat("allow_list[", i, "]"), &patterns.allow_list[i]});
  }
  for (std::size_t i = 0; i < patterns.ignore_list.size(); ++i) {
    all.push_back({absl::StrCat("ignore_list[", i, "]"), &patterns.ignore_list[i]});
  }
  for (std::size_t i = 0; i < patterns.rules.size(); ++i) {
    all.push_back({absl::StrCat("rules[", i, "].pattern"), &patterns.rules[i]});
  }
  return all;
}

std::string DescribeUnmatched(const Placed& placed, const std::vector<absl::string_view>& names) {
  const std::vector<std::string> near = NearNames(placed.pattern->text(), names, kMaxNearNames);
  return absl::StrCat(placed.field, ": the pattern ", Quoted(placed.pattern->text()),
                      " matches no buffer", near.empty() ? "" : "; near names: ",
                      absl::StrJoin(near, ", "));
}

// What gave a buffer its operation.
std::string Decider(const BufferRules& rules, int treatment) {
  const std::vector<Pattern>& patterns = rules.patterns().rules;
  if (treatment >= static_cast<int>(patterns.size())) return "the policy's own operation";
  return absl::StrCat("rules[", treatment, "] ", Quoted(patterns[treatment].text()));
}

}  // namespace

absl::Status CheckMatchWork(const BufferRules& rules,
                            const std::vector<absl::string_view>& names) {
  std::int64_t patterns = 0, sizes = 0, bytes = 0;
  for (const Placed& placed : PatternsOf(rules.patterns())) {
    if (placed.pattern->is_name()) continue;
    ++patterns;
    sizes += placed.pattern->size() * (placed.pattern->is_expression() ? kExpressionWeight : 1);
  }
  for (const absl::string_view name : names) bytes += static_cast<std::int64_t>(name.size());
  // Neither factor is large enough to overflow.
  if (sizes * bytes <= kMaxMatchWork) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the policy is too large for this model: its ", patterns,
      " patterns that are no plain names count as ", sizes, " instructions, the names of the ",
      names.size(), " buffers have ", bytes, " bytes, and the product is ", sizes * bytes,
      "; at most ", kMaxMatchWork, " is allowed, since all jobs of a coordinator wait for such a "
      "look at the model. Use fewer or shorter patterns, plain names, which do not count, or "
      "stars instead of expressions, which count ", kExpressionWeight, " times"));
}

std::vector<absl::string_view> BufferNames(const Manifest& manifest) {
  std::vector<absl::string_view> names;
  names.reserve(manifest.buffers.size());
  for (const TensorSpec& buffer : manifest.buffers) names.push_back(buffer.name);
  return names;
}

absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest) {
  LOCKSTEP_ASSIGN_OR_RETURN(const BufferRules rules, BufferRules::Compile(policy));
  return CheckPatternsMatch(rules, BufferNames(manifest));
}

absl::Status CheckPatternsMatch(const BufferRules& rules,
                                const std::vector<absl::string_view>& names) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMatchWork(rules, names));
  const std::set<absl::string_view> known(names.begin(), names.end());
  std::vector<std::string> described;
  int undescribed = 0;
  for (const Placed& placed : PatternsOf(rules.patterns())) {
    const bool is_matched =
        placed.pattern->is_name()
            ? known.contains(placed.pattern->text())
            : std::any_of(names.begin(), names.end(), [&](absl::string_view name) {
                return placed.pattern->Matches(name);
              });
    if (is_matched) continue;
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
  return CheckOperations(rules, manifest);
}

absl::Status CheckOperations(const BufferRules& rules, const Manifest& manifest) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMatchWork(rules, BufferNames(manifest)));
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
                                       Decider(rules, treatment), ")"));
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
