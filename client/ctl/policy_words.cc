#include "client/ctl/policy_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/operation.h"

namespace lockstep {
namespace {

constexpr char kDefault[] = "default";
constexpr char kLowestRank[] = "lowest-rank";
constexpr char kRuleForm[] = "PATTERN OPERATION [KEY=VALUE]...";

absl::StatusOr<bool> ParseSwitch(absl::string_view key, absl::string_view value) {
  if (value == "on") return true;
  if (value == "off") return false;
  return absl::InvalidArgumentError(
      absl::StrCat(key, "= is ", Quoted(value), "; expected on or off"));
}

absl::StatusOr<std::int64_t> ParsePeriod(absl::string_view key, absl::string_view value) {
  std::int64_t period = 0;
  if (absl::SimpleAtoi(value, &period) && period >= 0) return period;
  return absl::InvalidArgumentError(
      absl::StrCat(key, "= is ", Quoted(value), "; expected 0 (never) or a positive number"));
}

absl::Status SetKey(absl::string_view key, absl::string_view value, v1::SyncRule& rule) {
  if (key == "root") {
    LOCKSTEP_ASSIGN_OR_RETURN(*rule.mutable_root(), ParseRoot(std::string(value)));
  } else if (key == "every-forwards") {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t forwards, ParsePeriod(key, value));
    rule.mutable_schedule()->set_every_forwards(forwards);
  } else if (key == "every-steps") {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t steps, ParsePeriod(key, value));
    rule.mutable_schedule()->set_every_steps(steps);
  } else if (key == "at-start") {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool on, ParseSwitch(key, value));
    rule.mutable_schedule()->set_at_start(on);
  } else if (key == "before-evaluation") {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool on, ParseSwitch(key, value));
    rule.mutable_schedule()->set_before_evaluation(on);
  } else if (key == "before-checkpoint") {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool on, ParseSwitch(key, value));
    rule.mutable_schedule()->set_before_checkpoint(on);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(key),
                     " is no key; expected root, every-forwards, every-steps, at-start, "
                     "before-evaluation or before-checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::SyncRule> ParseWords(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", kRuleForm));
  }
  v1::SyncRule rule;
  rule.set_pattern(words[0]);
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Operation operation, ParseOperation(words[1]));
  rule.set_operation(operation);
  std::set<std::string> seen;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::pair<std::string, std::string> word =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const auto& [key, value] = word;
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(key), " is given twice"));
    }
    LOCKSTEP_RETURN_IF_ERROR(SetKey(key, value, rule));
  }
  return rule;
}

std::string RootWord(const Root& root) {
  if (const auto* by_rank = std::get_if<RootRank>(&root)) return absl::StrCat(by_rank->rank);
  if (const auto* by_name = std::get_if<RootWorker>(&root)) return by_name->worker;
  return kLowestRank;
}

}  // namespace

std::string OperationWord(v1::Operation operation) {
  if (operation == v1::OPERATION_UNSPECIFIED) return kDefault;
  if (!OperationFromNumber(operation)) return absl::StrCat("operation ", operation);
  return std::string(OperationName(static_cast<Operation>(operation)));
}

absl::StatusOr<v1::Operation> ParseOperation(const std::string& word) {
  std::vector<std::string> words;
  for (int number = v1::Operation_MIN; number <= v1::Operation_MAX; ++number) {
    const auto operation = static_cast<v1::Operation>(number);
    words.push_back(OperationWord(operation));
    if (words.back() == word) return operation;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(word), " is no operation; expected one of ", absl::StrJoin(words, ", ")));
}

absl::StatusOr<v1::Root> ParseRoot(const std::string& text) {
  if (text.empty()) {
    return absl::InvalidArgumentError("the root is empty; give a rank or a worker's name");
  }
  v1::Root root;
  if (text == kLowestRank) return root;
  const bool is_number = std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!is_number && text[0] != '-') {
    root.set_worker(text);
    return root;
  }
  std::int64_t rank = 0;
  if (!absl::SimpleAtoi(text, &rank) || rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the root '", text, "' is neither a rank, from 0, nor a worker's name"));
  }
  root.set_rank(rank);
  return root;
}

absl::StatusOr<v1::SyncRule> ParseRule(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  absl::StatusOr<v1::SyncRule> rule = ParseWords(words);
  if (rule.ok()) return rule;
  return absl::InvalidArgumentError(
      absl::StrCat("the rule ", Quoted(text), ": ", rule.status().message()));
}

std::string RuleText(const SyncRule& rule) {
  std::string text =
      absl::StrCat(rule.pattern, " ", rule.operation ? OperationName(*rule.operation) : kDefault);
  if (rule.root) absl::StrAppend(&text, " root=", RootWord(*rule.root));
  if (!rule.schedule) return text;
  const Schedule& schedule = *rule.schedule;
  // Always, since one key at least makes it the rule's own.
  absl::StrAppend(&text, " at-start=", schedule.at_start ? "on" : "off");
  if (schedule.every_forwards != 0) {
    absl::StrAppend(&text, " every-forwards=", schedule.every_forwards);
  }
  if (schedule.every_steps != 0) absl::StrAppend(&text, " every-steps=", schedule.every_steps);
  if (schedule.before_evaluation) absl::StrAppend(&text, " before-evaluation=on");
  if (schedule.before_checkpoint) absl::StrAppend(&text, " before-checkpoint=on");
  return text;
}

}  // namespace lockstep
