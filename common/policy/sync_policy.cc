#include "common/policy/sync_policy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxRulesDescribed = 3;

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

// What the fields checked so far take.
struct Totals {
  std::int64_t sizes = 0;  // of patterns
  std::int64_t bytes = 0;
};

absl::Status CountBytes(absl::string_view field, const std::string& text, Totals& totals) {
  totals.bytes += static_cast<std::int64_t>(text.size());
  if (totals.bytes <= kMaxPolicyBytes) return absl::OkStatus();
  return Bad(field, absl::StrCat("the policy's patterns and roots up to this one have ",
                                 totals.bytes, " bytes; at most ", kMaxPolicyBytes,
                                 " are allowed: use fewer or shorter patterns"));
}

absl::Status CompilePattern(absl::string_view field, const std::string& text, Totals& totals,
                            std::vector<Pattern>& out) {
  absl::StatusOr<Pattern> pattern = Pattern::Parse(text);
  if (!pattern.ok()) return Bad(field, pattern.status().message());
  LOCKSTEP_RETURN_IF_ERROR(CountBytes(field, text, totals));
  totals.sizes += pattern->size();
  if (totals.sizes > kMaxPatternSizes) {
    return Bad(field, absl::StrCat("the policy's patterns up to this one compile to ",
                                   totals.sizes, " instructions; at most ", kMaxPatternSizes,
                                   " are allowed: use fewer or simpler expressions"));
  }
  out.push_back(*std::move(pattern));
  return absl::OkStatus();
}

absl::Status CompileList(absl::string_view field, const std::vector<std::string>& list,
                         Totals& totals, std::vector<Pattern>& out) {
  if (list.size() > kMaxPatterns) {
    return Bad(field, absl::StrCat("has ", list.size(), " patterns; at most ", kMaxPatterns,
                                   " are allowed"));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        CompilePattern(absl::StrCat(field, "[", i, "]"), list[i], totals, out));
  }
  return absl::OkStatus();
}

absl::Status CheckPeriod(absl::string_view field, std::int64_t period) {
  if (period >= 0) return absl::OkStatus();
  return Bad(field, absl::StrCat("is ", period, "; expected 0 (never) or a positive number"));
}

absl::Status CheckRoot(absl::string_view field, const Root& root) {
  if (const auto* by_rank = std::get_if<RootRank>(&root); by_rank != nullptr && by_rank->rank < 0) {
    return Bad(absl::StrCat(field, ".rank"), absl::StrCat("is ", by_rank->rank, "; ranks count from 0"));
  }
  if (const auto* by_name = std::get_if<RootWorker>(&root)) {
    if (by_name->worker.empty()) {
      return Bad(absl::StrCat(field, ".worker"), "is empty; expected a worker's name");
    }
    if (by_name->worker.size() > kMaxRootWorkerBytes || !IsPrintable(by_name->worker)) {
      return Bad(absl::StrCat(field, ".worker"),
                 absl::StrCat("is ", Quoted(by_name->worker), "; expected at most ",
                              kMaxRootWorkerBytes, " bytes of printable UTF-8"));
    }
  }
  return absl::OkStatus();
}

std::string DescribeList(const std::vector<std::string>& list) {
  return ListNames(list, /*limit=*/10);
}

absl::Status CheckSchedule(absl::string_view field, const Schedule& schedule) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPeriod(absl::StrCat(field, ".every_forwards"), schedule.every_forwards));
  return CheckPeriod(absl::StrCat(field, ".every_steps"), schedule.every_steps);
}

absl::Status CheckOperation(absl::string_view field, Operation operation) {
  const auto number = static_cast<std::int64_t>(operation);
  if (OperationFromNumber(number).has_value()) return absl::OkStatus();
  return Bad(field, absl::StrCat("is the unknown number ", number,
                                 "; expected ", OperationNumbers()));
}

absl::Status CheckRule(absl::string_view field, const SyncRule& rule, Totals& totals) {
  if (rule.operation) {
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation(absl::StrCat(field, ".operation"), *rule.operation));
  }
  if (rule.root) {
    LOCKSTEP_RETURN_IF_ERROR(CheckRoot(absl::StrCat(field, ".root"), *rule.root));
    if (const auto* by_name = std::get_if<RootWorker>(&*rule.root)) {
      LOCKSTEP_RETURN_IF_ERROR(
          CountBytes(absl::StrCat(field, ".root.worker"), by_name->worker, totals));
    }
  }
  if (!rule.schedule) return absl::OkStatus();
  return CheckSchedule(absl::StrCat(field, ".schedule"), *rule.schedule);
}

void Add(const std::vector<std::string>& texts, Digester& digester) {
  digester.Add(static_cast<std::int64_t>(texts.size()));
  for (const std::string& text : texts) digester.Add(absl::string_view(text));
}

void Add(const Root& root, Digester& digester) {
  digester.Add(static_cast<std::int64_t>(root.index()));
  if (const auto* rank = std::get_if<RootRank>(&root)) digester.Add(rank->rank);
  if (const auto* worker = std::get_if<RootWorker>(&root)) digester.Add(worker->worker);
}

void Add(const Schedule& schedule, Digester& digester) {
  digester.Add(std::int64_t{schedule.at_start})
      .Add(schedule.every_forwards)
      .Add(schedule.every_steps)
      .Add(std::int64_t{schedule.before_evaluation})
      .Add(std::int64_t{schedule.before_checkpoint});
}

void Add(const SyncRule& rule, Digester& digester) {
  digester.Add(absl::string_view(rule.pattern));
  digester.Add(static_cast<std::int64_t>(rule.operation.value_or(Operation::kUnspecified)));
  digester.Add(std::int64_t{rule.root.has_value()});
  if (rule.root) Add(*rule.root, digester);
  digester.Add(std::int64_t{rule.schedule.has_value()});
  if (rule.schedule) Add(*rule.schedule, digester);
}

}  // namespace

absl::StatusOr<PolicyPatterns> CompilePatterns(const SyncPolicy& policy) {
  Totals totals;
  PolicyPatterns patterns;
  LOCKSTEP_RETURN_IF_ERROR(
      CompileList("allow_list", policy.allow_list, totals, patterns.allow_list));
  LOCKSTEP_RETURN_IF_ERROR(
      CompileList("ignore_list", policy.ignore_list, totals, patterns.ignore_list));
  if (policy.rules.size() > kMaxRules) {
    return Bad("rules", absl::StrCat("has ", policy.rules.size(), " rules; at most ", kMaxRules,
                                     " are allowed"));
  }
  for (std::size_t i = 0; i < policy.rules.size(); ++i) {
    const std::string field = absl::StrCat("rules[", i, "]");
    LOCKSTEP_RETURN_IF_ERROR(CompilePattern(absl::StrCat(field, ".pattern"),
                                            policy.rules[i].pattern, totals, patterns.rules));
    LOCKSTEP_RETURN_IF_ERROR(CheckRule(field, policy.rules[i], totals));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOperation("operation", policy.operation));
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot("root", policy.root));
  LOCKSTEP_RETURN_IF_ERROR(CheckSchedule("schedule", policy.schedule));
  LOCKSTEP_RETURN_IF_ERROR(CheckPeriod("broadcast_parameters_every_steps",
                                       policy.broadcast_parameters_every_steps));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPeriod("check_parameters_every_steps", policy.check_parameters_every_steps));
  return patterns;
}

absl::Status Validate(const SyncPolicy& policy) { return CompilePatterns(policy).status(); }

std::uint64_t Digest(const SyncPolicy& policy) {
  Digester digester;
  digester.Add(std::int64_t{policy.broadcast_buffers});
  Add(policy.allow_list, digester);
  Add(policy.ignore_list, digester);
  digester.Add(static_cast<std::int64_t>(policy.rules.size()));
  for (const SyncRule& rule : policy.rules) Add(rule, digester);
  digester.Add(static_cast<std::int64_t>(policy.operation));
  Add(policy.root, digester);
  Add(policy.schedule, digester);
  digester.Add(std::int64_t{policy.skip_unchanged})
      .Add(std::int64_t{policy.broadcast_parameters_at_start})
      .Add(policy.broadcast_parameters_every_steps)
      .Add(policy.check_parameters_every_steps);
  return digester.Finish();
}

std::string Describe(const Root& root) {
  if (const auto* by_rank = std::get_if<RootRank>(&root)) {
    return absl::StrCat("rank ", by_rank->rank);
  }
  if (const auto* by_name = std::get_if<RootWorker>(&root)) {
    return absl::StrCat("worker ", by_name->worker);
  }
  return "the lowest rank";
}

std::string Describe(const Schedule& schedule) {
  std::vector<std::string> times;
  if (schedule.at_start) times.push_back("at start");
  if (schedule.every_forwards == 1) times.push_back("before every forward");
  if (schedule.every_forwards > 1) {
    times.push_back(absl::StrCat("every ", schedule.every_forwards, " forwards"));
  }
  if (schedule.every_steps == 1) times.push_back("after every step");
  if (schedule.every_steps > 1) {
    times.push_back(absl::StrCat("every ", schedule.every_steps, " steps"));
  }
  if (schedule.before_evaluation) times.push_back("before evaluation");
  if (schedule.before_checkpoint) times.push_back("before checkpoint");
  return times.empty() ? "on command only" : absl::StrJoin(times, " and ");
}

std::string Describe(const SyncRule& rule) {
  std::vector<std::string> parts;
  if (rule.operation) parts.push_back(absl::StrCat("by ", OperationName(*rule.operation)));
  if (rule.root) parts.push_back(absl::StrCat("from ", Describe(*rule.root)));
  if (rule.schedule) parts.push_back(Describe(*rule.schedule));
  return absl::StrCat(rule.pattern, " ",
                      parts.empty() ? "as the policy says" : absl::StrJoin(parts, ", "));
}

std::string DescribeParameters(const SyncPolicy& policy) {
  std::vector<std::string> times;
  if (policy.broadcast_parameters_at_start) times.push_back("broadcast at start");
  if (policy.broadcast_parameters_every_steps > 0) {
    times.push_back(
        absl::StrCat("broadcast every ", policy.broadcast_parameters_every_steps, " steps"));
  }
  if (policy.check_parameters_every_steps > 0) {
    times.push_back(absl::StrCat("compared every ", policy.check_parameters_every_steps, " steps"));
  }
  return times.empty() ? "not broadcast" : absl::StrJoin(times, " and ");
}

std::string Describe(const SyncPolicy& policy) {
  const SyncPolicy defaults;
  std::vector<std::string> parts = {policy.broadcast_buffers ? "on" : "off"};
  if (!policy.allow_list.empty()) {
    parts.push_back(absl::StrCat("allow ", DescribeList(policy.allow_list)));
  }
  if (!policy.ignore_list.empty()) {
    parts.push_back(absl::StrCat("ignore ", DescribeList(policy.ignore_list)));
  }
  for (std::size_t i = 0; i < std::min(policy.rules.size(), kMaxRulesDescribed); ++i) {
    parts.push_back(absl::StrCat("rule ", Describe(policy.rules[i])));
  }
  if (policy.rules.size() > kMaxRulesDescribed) {
    parts.push_back(absl::StrCat(policy.rules.size() - kMaxRulesDescribed, " more rules"));
  }
  if (policy.operation != defaults.operation) {
    parts.push_back(absl::StrCat("by ", OperationName(policy.operation)));
  }
  if (policy.root != defaults.root) {
    parts.push_back(absl::StrCat("from ", Describe(policy.root)));
  }
  parts.push_back(Describe(policy.schedule));
  if (policy.skip_unchanged) parts.push_back("unless unchanged");
  const std::string parameters = DescribeParameters(policy);
  if (parameters != DescribeParameters(defaults)) {
    parts.push_back(absl::StrCat("parameters ", parameters));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace lockstep
