#include "common/policy/sync_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/near_names.h"

namespace lockstep {
namespace {

// Unmatched patterns that one message describes; it counts the others.
constexpr int kMaxDescribed = 5;
constexpr int kMaxNearNames = 3;

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status CheckList(absl::string_view field, const std::vector<std::string>& list) {
  if (list.size() > kMaxPatterns) {
    return Bad(field, absl::StrCat("has ", list.size(), " patterns; at most ", kMaxPatterns,
                                   " are allowed"));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const absl::Status parsed = Pattern::Parse(list[i]).status();
    if (!parsed.ok()) return Bad(absl::StrCat(field, "[", i, "]"), parsed.message());
  }
  return absl::OkStatus();
}

absl::Status CheckPeriod(absl::string_view field, std::int64_t period) {
  if (period >= 0) return absl::OkStatus();
  return Bad(field, absl::StrCat("is ", period, "; expected 0 (never) or a positive number"));
}

absl::Status CheckRoot(const Root& root) {
  if (const auto* by_rank = std::get_if<RootRank>(&root); by_rank != nullptr && by_rank->rank < 0) {
    return Bad("root.rank", absl::StrCat("is ", by_rank->rank, "; ranks count from 0"));
  }
  if (const auto* by_name = std::get_if<RootWorker>(&root)) {
    if (by_name->worker.empty()) {
      return Bad("root.worker", "is empty; expected a worker's name");
    }
    if (by_name->worker.size() > kMaxRootWorkerBytes || !IsPrintable(by_name->worker)) {
      return Bad("root.worker",
                 absl::StrCat("is ", Quoted(by_name->worker), "; expected at most ",
                              kMaxRootWorkerBytes, " bytes of printable UTF-8"));
    }
  }
  return absl::OkStatus();
}

// Appends one line per pattern of the list that matches no name, up to the limit
// that `described` approaches; counts the others in `undescribed`.
absl::Status DescribeUnmatched(absl::string_view field, const std::vector<std::string>& list,
                               const std::vector<absl::string_view>& names,
                               std::vector<std::string>& described, int& undescribed) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Pattern pattern, Pattern::Parse(list[i]));
    if (std::any_of(names.begin(), names.end(),
                    [&](absl::string_view name) { return pattern.Matches(name); })) {
      continue;
    }
    if (described.size() >= kMaxDescribed) {
      ++undescribed;
      continue;
    }
    const std::vector<std::string> near = NearNames(list[i], names, kMaxNearNames);
    described.push_back(absl::StrCat(field, "[", i, "]: the pattern ", Quoted(list[i]),
                                     " matches no buffer",
                                     near.empty() ? "" : "; near names: ",
                                     near.empty() ? "" : absl::StrJoin(near, ", ")));
  }
  return absl::OkStatus();
}

std::string DescribeList(const std::vector<std::string>& list) {
  return ListNames(list, /*limit=*/10);
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
  return times.empty() ? "on command only" : absl::StrJoin(times, " and ");
}

}  // namespace

absl::Status Validate(const SyncPolicy& policy) {
  LOCKSTEP_RETURN_IF_ERROR(CheckList("allow_list", policy.allow_list));
  LOCKSTEP_RETURN_IF_ERROR(CheckList("ignore_list", policy.ignore_list));
  if (policy.operation != Operation::kBroadcast) {
    return Bad("operation", absl::StrCat("is the unknown number ",
                                         static_cast<std::int64_t>(policy.operation),
                                         "; expected 1 (broadcast)"));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRoot(policy.root));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPeriod("schedule.every_forwards", policy.schedule.every_forwards));
  return CheckPeriod("schedule.every_steps", policy.schedule.every_steps);
}

absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest) {
  std::vector<absl::string_view> names;
  names.reserve(manifest.buffers.size());
  for (const TensorSpec& buffer : manifest.buffers) names.push_back(buffer.name);
  std::vector<std::string> described;
  int undescribed = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      DescribeUnmatched("allow_list", policy.allow_list, names, described, undescribed));
  LOCKSTEP_RETURN_IF_ERROR(
      DescribeUnmatched("ignore_list", policy.ignore_list, names, described, undescribed));
  if (described.empty()) return absl::OkStatus();
  if (undescribed > 0) {
    described.push_back(absl::StrCat(undescribed, " more patterns match no buffer"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(described, ". "), ". The model has ", names.size(),
                   " buffers; correct the patterns, or allow unmatched ones"));
}

std::string Describe(const SyncPolicy& policy) {
  return absl::StrCat(
      "broadcast_buffers ", policy.broadcast_buffers ? "on" : "off", ", allow ",
      policy.allow_list.empty() ? "all" : DescribeList(policy.allow_list), ", ignore ",
      DescribeList(policy.ignore_list), ", broadcast from ", Describe(policy.root), ", ",
      Describe(policy.schedule), ", parameters ",
      policy.broadcast_parameters_at_start ? "at start" : "never");
}

}  // namespace lockstep
