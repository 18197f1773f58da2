// Sync policies, whoever sends them: from the wire to the rule that decides on a buffer. Bytes are
// read as policy_input.h says. A policy is refused with InvalidArgument, or it is valid, survives
// the wire, compiles, and treats each buffer as a naive restatement of the rules says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/model_check.h"
#include "common/policy/operation.h"
#include "common/policy/pattern.h"
#include "common/policy/preview.h"
#include "common/policy/schedule.h"
#include "common/policy/sync_policy.h"
#include "proto/convert/policy_convert.h"
#include "tests/fuzz/policy_input.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

absl::Status IsOkOrInvalidArgument(const absl::Status& status, absl::string_view of) {
  return IsOkOr({absl::StatusCode::kInvalidArgument}, status, of);
}

absl::Status CheckTranslation(const SyncPolicy& policy) {
  const v1::SyncPolicy proto = ToProto(policy);
  v1::SyncPolicy received;
  LOCKSTEP_RETURN_IF_ERROR(Holds(received.ParseFromString(proto.SerializeAsString()),
                                 "what is sent can be read", proto.ShortDebugString()));
  const absl::StatusOr<SyncPolicy> back = FromProto(received);
  LOCKSTEP_RETURN_IF_ERROR(Holds(back.ok(), "what is sent is valid", back.status().ToString()));
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(*back == policy, "what is received is what was sent", proto.ShortDebugString()));
  LOCKSTEP_RETURN_IF_ERROR(Holds(Digest(*back) == Digest(policy), "equal policies, equal digests",
                                 proto.ShortDebugString()));
  SyncPolicy other = policy;
  other.skip_unchanged = !other.skip_unchanged;
  return Holds(Digest(other) != Digest(policy), "other policies, other digests",
               proto.ShortDebugString());
}

absl::Status CheckDescriptions(const SyncPolicy& policy) {
  std::vector<std::string> texts = {Describe(policy), Describe(policy.root),
                                    Describe(policy.schedule)};
  for (const SyncRule& rule : policy.rules) texts.push_back(Describe(rule));
  for (const std::string& text : texts) {
    LOCKSTEP_RETURN_IF_ERROR(Holds(!text.empty() && IsPrintable(text),
                                   "a description can be shown on one line", text));
  }
  return absl::OkStatus();
}

// A valid policy's patterns, each parsed once.
class Patterns {
 public:
  bool Match(const std::string& text, const std::string& name) {
    auto found = parsed_.find(text);
    if (found == parsed_.end()) found = parsed_.emplace(text, *Pattern::Parse(text)).first;
    return found->second.Matches(name);
  }

  bool AnyMatches(const std::vector<std::string>& texts, const std::string& name) {
    bool any = false;
    for (const std::string& text : texts) any = any || Match(text, name);
    return any;
  }

 private:
  std::map<std::string, Pattern> parsed_;
};

// As pattern.h words it: matches[g][n] says whether the pattern from byte g on
// matches the name from byte n on.
bool GlobMatches(absl::string_view glob, absl::string_view name) {
  std::vector<std::vector<bool>> matches(glob.size() + 1, std::vector<bool>(name.size() + 1));
  matches[glob.size()][name.size()] = true;
  for (std::size_t g = glob.size(); g-- > 0;) {
    const absl::string_view rest = glob.substr(g);
    const bool starts_component = g == 0 || glob[g - 1] == '.';
    const bool any_depth = starts_component && absl::StartsWith(rest, "**.");
    const bool stars = absl::StartsWith(rest, "**");
    bool below = false;  // whether a component after byte n goes on as `**.` does
    for (std::size_t n = name.size() + 1; n-- > 0;) {
      const bool ends = n == name.size();
      if (!ends && name[n] == '.') below = below || (any_depth && matches[g + 3][n + 1]);
      if (any_depth) {
        matches[g][n] = matches[g + 3][n] || below;
      } else if (stars) {
        matches[g][n] = matches[g + 2][n] || (!ends && matches[g][n + 1]);
      } else if (rest[0] == '*') {
        matches[g][n] = matches[g + 1][n] || (!ends && name[n] != '.' && matches[g][n + 1]);
      } else {
        matches[g][n] = !ends && name[n] == rest[0] && matches[g + 1][n + 1];
      }
    }
  }
  return matches[0][0];
}

std::vector<std::string> PatternsOf(const SyncPolicy& policy) {
  std::vector<std::string> texts = policy.allow_list;
  texts.insert(texts.end(), policy.ignore_list.begin(), policy.ignore_list.end());
  for (const SyncRule& rule : policy.rules) texts.push_back(rule.pattern);
  return texts;
}

absl::Status CheckGlobs(const SyncPolicy& policy, const std::vector<std::string>& names,
                        Patterns& patterns) {
  for (const std::string& text : PatternsOf(policy)) {
    if (absl::StartsWith(text, "re:")) continue;
    for (const std::string& name : names) {
      LOCKSTEP_RETURN_IF_ERROR(Holds(patterns.Match(text, name) == GlobMatches(text, name),
                                     absl::StrCat("a pattern's stars match as pattern.h says: ",
                                                  Quoted(text)),
                                     name));
    }
  }
  return absl::OkStatus();
}

// As sync_policy.h words it, from the last to the first.
BufferMatch NaiveFind(const SyncPolicy& policy, Patterns& patterns, const std::string& name) {
  BufferMatch match = {.treatment = static_cast<int>(policy.rules.size())};
  for (int i = match.treatment - 1; i >= 0; --i) {
    if (patterns.Match(policy.rules[i].pattern, name)) match.treatment = i;
  }
  if (!policy.allow_list.empty() && !patterns.AnyMatches(policy.allow_list, name)) {
    match = {.why = BufferMatch::Why::kNotAllowed};
  }
  for (int i = static_cast<int>(policy.ignore_list.size()) - 1; i >= 0; --i) {
    if (patterns.Match(policy.ignore_list[i], name)) {
      match = {.why = BufferMatch::Why::kIgnored, .pattern = i};
    }
  }
  return match;
}

Treatment NaiveTreatment(const SyncPolicy& policy, std::size_t index) {
  Treatment treatment = {
      .operation = policy.operation, .root = policy.root, .schedule = policy.schedule};
  if (index == policy.rules.size()) return treatment;
  const SyncRule& rule = policy.rules[index];
  if (rule.operation) treatment.operation = *rule.operation;
  if (rule.root) treatment.root = *rule.root;
  if (rule.schedule) treatment.schedule = *rule.schedule;
  return treatment;
}

absl::Status CheckTreatments(const SyncPolicy& policy, const BufferRules& rules) {
  LOCKSTEP_RETURN_IF_ERROR(Holds(rules.treatments().size() == policy.rules.size() + 1,
                                 "a treatment for each rule and the policy's own",
                                 Describe(policy)));
  for (std::size_t i = 0; i < rules.treatments().size(); ++i) {
    const Treatment& treatment = rules.treatments()[i];
    const Treatment naive = NaiveTreatment(policy, i);
    LOCKSTEP_RETURN_IF_ERROR(Holds(treatment.operation == naive.operation &&
                                       treatment.root == naive.root &&
                                       treatment.schedule == naive.schedule,
                                   absl::StrCat("treatment ", i, " is the rule's, else the policy's"),
                                   Describe(policy)));
  }
  return absl::OkStatus();
}

absl::Status CheckFind(const SyncPolicy& policy, const BufferRules& rules,
                       const std::string& name, Patterns& patterns) {
  const BufferMatch match = rules.Find(name);
  const BufferMatch naive = NaiveFind(policy, patterns, name);
  return Holds(match.why == naive.why && match.treatment == naive.treatment &&
                   match.pattern == naive.pattern,
               absl::StrCat("ignored, else not allowed, else the first rule that matches (treatment ",
                            match.treatment, ", expected ", naive.treatment, ")"),
               name);
}

// The names of the model, and texts of patterns, which are odd names.
std::vector<std::string> NamesToFind(const SyncPolicy& policy, const Manifest& manifest) {
  std::vector<std::string> names = {"", "."};
  for (const TensorSpec& buffer : manifest.buffers) names.push_back(buffer.name);
  for (const SyncRule& rule : policy.rules) {
    if (names.size() < 60) names.push_back(rule.pattern);
  }
  return names;
}

absl::Status CheckAgainstModel(const SyncPolicy& policy, const BufferRules& rules,
                               const Manifest& manifest, Patterns& patterns) {
  const auto matches_some = [&](const std::string& pattern) {
    for (const TensorSpec& buffer : manifest.buffers) {
      if (patterns.Match(pattern, buffer.name)) return true;
    }
    return false;
  };
  bool all_match = true;
  for (const std::string& text : PatternsOf(policy)) all_match = all_match && matches_some(text);
  const absl::Status matched = CheckPatternsMatch(policy, manifest);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrInvalidArgument(matched, "CheckPatternsMatch"));
  LOCKSTEP_RETURN_IF_ERROR(Holds(matched.ok() == all_match,
                                 "CheckPatternsMatch refuses a pattern that matches nothing",
                                 matched.ToString()));

  bool all_defined = true;
  for (const TensorSpec& buffer : manifest.buffers) {
    const int treatment = NaiveFind(policy, patterns, buffer.name).treatment;
    if (treatment < 0 || buffer.dtype == DType::kUnspecified) continue;
    all_defined = all_defined && IsDefined(rules.treatments()[treatment].operation, buffer.dtype);
  }
  const absl::Status defined = CheckOperations(policy, manifest);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrInvalidArgument(defined, "CheckOperations"));
  return Holds(defined.ok() == all_defined,
               "CheckOperations refuses an operation that a type does not have",
               defined.ToString());
}

absl::Status CheckRoots(const BufferRules& rules, const std::vector<std::string>& members) {
  for (const Treatment& treatment : rules.treatments()) {
    const ResolvedRoot root = ResolveRoot(treatment.root, members);
    bool is_there = std::holds_alternative<LowestRank>(treatment.root);
    int rank = 0;
    for (int i = 0; i < static_cast<int>(members.size()); ++i) {
      if (treatment.root != Root(RootRank{i}) && treatment.root != Root(RootWorker{members[i]})) {
        continue;
      }
      is_there = true;
      rank = i;
    }
    LOCKSTEP_RETURN_IF_ERROR(Holds(root.rank == rank && root.fallback == !is_there,
                                   "a root that is not a member falls back to rank 0",
                                   Describe(treatment.root)));
  }
  return absl::OkStatus();
}

// The row that the rules give a buffer.
BufferPreview NaiveRow(const SyncPolicy& policy, const TensorSpec& buffer,
                       const std::vector<std::string>& members, Patterns& patterns) {
  using Selection = BufferPreview::Selection;
  BufferPreview row = {.name = buffer.name, .type = buffer.ToString()};
  const BufferMatch match = NaiveFind(policy, patterns, buffer.name);
  if (match.why == BufferMatch::Why::kNotAllowed) row.selection = Selection::kNotAllowed;
  if (match.why == BufferMatch::Why::kIgnored) {
    row.selection = Selection::kIgnored;
    row.pattern = policy.ignore_list[match.pattern];
  }
  if (match.why != BufferMatch::Why::kTreated) return row;
  if (match.treatment < static_cast<int>(policy.rules.size())) {
    row.pattern = policy.rules[match.treatment].pattern;
    row.rule = match.treatment;
  }
  const Treatment treatment = NaiveTreatment(policy, match.treatment);
  if (treatment.operation == Operation::kNone) row.selection = Selection::kRankLocal;
  if (row.selection == Selection::kRankLocal) return row;
  row.operation = treatment.operation;
  row.root = treatment.root;
  row.schedule = treatment.schedule;
  if (!policy.broadcast_buffers) {
    row.schedule = {.at_start = treatment.schedule.at_start, .every_forwards = 0};
  }
  row.bytes = buffer.bytes();
  if (!members.empty()) row.root_worker = members[ResolveRoot(row.root, members).rank];
  return row;
}

// What the rows for which `is_due` holds cost together, all by broadcast if `by_broadcast`.
template <typename IsDueFunction>
SyncCost NaiveCost(const std::vector<BufferPreview>& rows, IsDueFunction is_due,
                   bool by_broadcast = false) {
  SyncCost cost;
  std::vector<const BufferPreview*> transfers;  // the first of each
  const auto is_broadcast = [&](const BufferPreview& row) {
    return by_broadcast || row.operation == Operation::kBroadcast;
  };
  const auto root_of = [](const BufferPreview& row) {
    return row.root == Root(LowestRank{}) ? Root(RootRank{0}) : row.root;
  };
  const auto same_transfer = [&](const BufferPreview& a, const BufferPreview& b) {
    if (is_broadcast(a) != is_broadcast(b)) return false;
    if (!is_broadcast(a) && a.operation == Operation::kMeanBySamples) {
      Schedule other = b.schedule;
      other.at_start = a.schedule.at_start;
      return a.operation == b.operation && a.schedule == other;
    }
    if (!is_broadcast(a)) return a.operation == b.operation;
    // Without members nobody stands in for a root.
    return a.root_worker == b.root_worker && (!a.root_worker.empty() || root_of(a) == root_of(b));
  };
  for (const BufferPreview& row : rows) {
    if (row.selection != BufferPreview::Selection::kSynced || !is_due(row.schedule)) continue;
    ++cost.buffers;
    cost.bytes += row.bytes;  // a valid model's bytes fit
    if (row.bytes == 0) continue;
    const bool is_known = std::any_of(
        transfers.begin(), transfers.end(),
        [&](const BufferPreview* other) { return same_transfer(row, *other); });
    if (!is_known) transfers.push_back(&row);
  }
  cost.transfers = static_cast<std::int64_t>(transfers.size());
  return cost;
}

absl::Status CheckPreview(const SyncPolicy& policy, const PolicyInput& input, Patterns& patterns) {
  const absl::StatusOr<PolicyPreview> preview = Preview(policy, input.manifest, input.members);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(preview.ok(), "a valid policy has a preview", preview.status().ToString()));
  std::vector<BufferPreview> rows;
  std::int64_t synced = 0;
  for (const TensorSpec& buffer : input.manifest.buffers) {
    rows.push_back(NaiveRow(policy, buffer, input.members, patterns));
    if (rows.back().selection == BufferPreview::Selection::kSynced) ++synced;
  }
  const std::string on = Describe(policy);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(preview->buffers == rows, "the preview has a row for each buffer, as Find says", on));
  LOCKSTEP_RETURN_IF_ERROR(Holds(preview->total_buffers == static_cast<std::int64_t>(rows.size()) &&
                                     preview->synced_buffers == synced,
                                 "the preview counts its rows", on));
  const auto never_if_off = [&](bool is_due) { return policy.broadcast_buffers && is_due; };
  const auto at_start = [](const Schedule& schedule) { return schedule.at_start; };
  const auto forward = [&](const Schedule& s) { return never_if_off(s.every_forwards > 0); };
  const auto step = [&](const Schedule& s) { return never_if_off(s.every_steps > 0); };
  const auto evaluation = [&](const Schedule& s) { return never_if_off(s.before_evaluation); };
  const auto checkpoint = [&](const Schedule& s) { return never_if_off(s.before_checkpoint); };
  const auto always = [](const Schedule&) { return true; };
  if (input.members.size() == 1) rows.clear();  // alone nothing is sent
  const bool costs_add_up =
      preview->at_start == NaiveCost(rows, at_start, /*by_broadcast=*/true) &&
      preview->before_forward == NaiveCost(rows, forward) &&
      preview->after_step == NaiveCost(rows, step) &&
      preview->before_evaluation == NaiveCost(rows, evaluation) &&
      preview->before_checkpoint == NaiveCost(rows, checkpoint) &&
      preview->on_command == NaiveCost(rows, always);
  LOCKSTEP_RETURN_IF_ERROR(Holds(costs_add_up, "costs are the sums over rows", on));
  for (const std::string& warning : preview->warnings) {
    LOCKSTEP_RETURN_IF_ERROR(Holds(!warning.empty() && IsPrintable(warning),
                                   "a warning can be shown on one line", warning));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  const PolicyInput input = ReadPolicyInput(bytes);
  if (!input.policy.has_value()) return Reached::kUnread;
  const absl::StatusOr<SyncPolicy> policy = FromProto(*input.policy);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOrInvalidArgument(policy.status(), "FromProto"));
  if (!policy.ok()) return Reached::kRefused;
  const absl::Status valid = Validate(*policy);
  LOCKSTEP_RETURN_IF_ERROR(Holds(valid.ok(), "what FromProto accepts is valid", valid.ToString()));
  LOCKSTEP_RETURN_IF_ERROR(CheckTranslation(*policy));
  LOCKSTEP_RETURN_IF_ERROR(CheckDescriptions(*policy));
  const absl::StatusOr<BufferRules> rules = BufferRules::Compile(*policy);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(rules.ok(), "a valid policy compiles", rules.status().ToString()));
  LOCKSTEP_RETURN_IF_ERROR(CheckTreatments(*policy, *rules));
  Patterns patterns;
  const std::vector<std::string> names = NamesToFind(*policy, input.manifest);
  LOCKSTEP_RETURN_IF_ERROR(CheckGlobs(*policy, names, patterns));
  for (const std::string& name : names) {
    LOCKSTEP_RETURN_IF_ERROR(CheckFind(*policy, *rules, name, patterns));
  }
  if (!CheckMatchWork(*rules, BufferNames(input.manifest)).ok()) {
    // Refused with every model, which the tests of model_check.h look at.
    return Reached::kChecked;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckAgainstModel(*policy, *rules, input.manifest, patterns));
  LOCKSTEP_RETURN_IF_ERROR(CheckRoots(*rules, input.members));
  LOCKSTEP_RETURN_IF_ERROR(CheckPreview(*policy, input, patterns));
  return Reached::kChecked;
}

}  // namespace lockstep
