#include "common/policy/warnings.h"

#include <cstddef>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"
#include "common/policy/batch_norm_warnings.h"
#include "common/policy/model_check.h"
#include "common/policy/name_words.h"
#include "common/policy/pattern.h"
#include "common/policy/schedule.h"
#include "common/policy/warning_parts.h"

namespace lockstep {
namespace {

// What a rank fills with its own data, and where it stands in it.
constexpr absl::string_view kRankLocalWords[] = {"queue",   "replay", "memory_bank", "history",
                                                 "cursor",  "ptr",    "rng_state"};
// Unit vectors or assignments: their mean is not one of them.
constexpr absl::string_view kNoMeanWords[] = {"queue", "codebook", "prototype", "centroid",
                                              "embedding"};
constexpr absl::string_view kConstantWords[] = {
    "freqs",  "inv_freq", "mask", "pos_emb", "pos_embed", "pos_embedding", "position_ids",
    "anchor", "table",    "rope"};
// Masks of torch.nn.utils.prune, which change whenever training prunes again.
constexpr absl::string_view kPruningWords[] = {"weight_mask", "bias_mask"};

using Texts = std::vector<std::string>;

// What is judged.
struct Subject {
  const SyncPolicy& policy;
  const BufferRules& rules;
  const Manifest& manifest;
  const std::vector<std::string>& members;
  std::vector<absl::string_view> names = {};  // of all buffers of some worker
  std::vector<TreatedBuffer> buffers = {};  // in the model's order
  std::vector<TreatedBuffer> synced = {};   // of them
  std::set<int> used = {};                  // treatments that some buffer has
};

void AddBuffers(Subject& subject) {
  for (const TensorSpec& buffer : subject.manifest.buffers) {
    TreatedBuffer treated = {.buffer = &buffer};
    if (const int treatment = subject.rules.Find(buffer.name).treatment; treatment >= 0) {
      subject.used.insert(treatment);
      const Treatment& how = subject.rules.treatments()[static_cast<std::size_t>(treatment)];
      if (how.operation != Operation::kNone) treated.how = &how;
    }
    subject.buffers.push_back(treated);
    if (treated.how != nullptr) subject.synced.push_back(treated);
  }
}

std::string Buffers(const std::vector<std::string>& names) {
  return absl::StrCat(names.size() == 1 ? "buffer " : "buffers ", ListQuoted(names));
}

// The parts of a BatchNorm are what they are, whatever their layer is called.
bool LooksLike(const TreatedBuffer& treated, std::span<const absl::string_view> words) {
  const std::string& name = treated.buffer->name;
  return !IsBatchNormPart(name) && HoldsAWord(name, words);
}

bool IsRepeating(const Schedule& schedule) {
  return schedule.every_forwards > 0 || schedule.every_steps > 0 || schedule.before_evaluation ||
         schedule.before_checkpoint;
}

bool IsMean(Operation operation) {
  return operation == Operation::kMean || operation == Operation::kMeanBySamples;
}

template <typename Condition>
std::vector<std::string> NamesOf(const Subject& subject, Condition condition) {
  std::vector<std::string> names;
  for (const TreatedBuffer& treated : subject.synced) {
    if (condition(treated)) names.push_back(treated.buffer->name);
  }
  return names;
}

// One sentence on the buffers, if there are any.
Texts OnBuffers(const std::vector<std::string>& names, absl::string_view what) {
  if (names.empty()) return {};
  return {absl::StrCat(Buffers(names), what)};
}

std::string RuleName(const Subject& subject, std::size_t rule) {
  return absl::StrCat("rules[", rule, "] ", Quoted(subject.policy.rules[rule].pattern));
}

// What decides about a buffer.
std::string TakerOf(const Subject& subject, const std::string& name) {
  const BufferMatch match = subject.rules.Find(name);
  const auto pattern = static_cast<std::size_t>(match.pattern);
  switch (match.why) {
    case BufferMatch::Why::kNotAllowed:
      return "the allow list";
    case BufferMatch::Why::kIgnored:
      return absl::StrCat("ignore_list[", pattern, "] ",
                          Quoted(subject.policy.ignore_list[pattern]));
    case BufferMatch::Why::kTreated:
      break;
  }
  return RuleName(subject, static_cast<std::size_t>(match.treatment));
}

Texts Refusals(const Subject& subject) {
  Texts warnings;
  for (const absl::Status& status : {CheckOperations(subject.rules, subject.manifest),
                                     CheckPatternsMatch(subject.rules, subject.names)}) {
    if (status.ok()) continue;
    warnings.push_back(absl::StrCat("an update would refuse this policy: ", status.message()));
  }
  return warnings;
}

Texts RulesWithoutEffect(const Subject& subject) {
  Texts warnings;
  for (std::size_t rule = 0; rule < subject.policy.rules.size(); ++rule) {
    if (subject.used.contains(static_cast<int>(rule))) continue;
    const absl::StatusOr<Pattern> pattern = Pattern::Parse(subject.policy.rules[rule].pattern);
    if (!pattern.ok()) continue;
    std::vector<std::string> matched;
    for (const TensorSpec& buffer : subject.manifest.buffers) {
      if (pattern->Matches(buffer.name)) matched.push_back(buffer.name);
    }
    if (matched.empty()) continue;  // a pattern that matches nothing is refused
    warnings.push_back(absl::StrCat(
        RuleName(subject, rule), " has no effect: what it matches, ", Buffers(matched),
        ", is decided before it (", Quoted(matched.front()), " by ",
        TakerOf(subject, matched.front()), ")"));
  }
  return warnings;
}

Texts SchedulesThatTheSwitchEnds(const Subject& subject) {
  if (subject.policy.broadcast_buffers) return {};
  // The default schedule is what somebody has who only turns the switch off.
  NameGroups by_schedule;
  for (const TreatedBuffer& treated : subject.synced) {
    const Schedule& schedule = treated.how->schedule;
    if (!IsRepeating(schedule) || schedule == Schedule{}) continue;
    by_schedule[Describe(schedule)].push_back(treated.buffer->name);
  }
  Texts warnings;
  for (const auto& [schedule, names] : by_schedule) {
    warnings.push_back(
        absl::StrCat("broadcast_buffers is off, so that ", Buffers(names),
                     " are synced at start and on command at most, although their schedule says ",
                     schedule));
  }
  return warnings;
}

Texts RootsThatAreNoMembers(const Subject& subject) {
  const SyncPolicy& policy = subject.policy;
  if (subject.members.empty()) return {};
  const auto is_missing = [&](const Root& root) {
    return ResolveRoot(root, subject.members).fallback;
  };
  NameGroups by_root;
  for (const TreatedBuffer& treated : subject.synced) {
    if (HasRoot(*treated.how) && is_missing(treated.how->root)) {
      by_root[Describe(treated.how->root)].push_back(treated.buffer->name);
    }
  }
  const bool of_parameters =
      (policy.broadcast_parameters_at_start || policy.broadcast_parameters_every_steps > 0) &&
      is_missing(policy.root);
  if (of_parameters) by_root[Describe(policy.root)];
  Texts warnings;
  for (const auto& [root, names] : by_root) {
    const bool also = of_parameters && root == Describe(policy.root);
    warnings.push_back(absl::StrCat(
        root, ", the root of ", names.empty() ? "" : Buffers(names),
        names.empty() || !also ? "" : " and of ", also ? "the parameters" : "",
        ", is no member of the current epoch; ", subject.members.front(), " (rank 0) stands in"));
  }
  return warnings;
}

Texts BuffersWithoutValues(const Subject& subject) {
  return OnBuffers(
      NamesOf(subject,
              [](const TreatedBuffer& t) { return t.buffer->dtype == DType::kUnspecified; }),
      " held no plain values (sparse, quantized or not materialised) when the model was told; a "
      "sync fails until they do: ignore them, or give them the operation none");
}

Texts UnequalBatchNorms(const Subject& subject) {
  return FindBatchNormWarnings(subject.buffers, subject.members);
}

Texts RankLocalValues(const Subject& subject) {
  NameGroups by_operation;
  for (const TreatedBuffer& treated : subject.synced) {
    if (!LooksLike(treated, kRankLocalWords)) continue;
    by_operation[std::string(OperationName(treated.how->operation))].push_back(
        treated.buffer->name);
  }
  Texts warnings;
  for (const auto& [operation, names] : by_operation) {
    warnings.push_back(absl::StrCat(
        Buffers(names), " look like what each rank keeps for itself, but are overwritten by ",
        operation, "; ignore them, or give them the operation none"));
  }
  return warnings;
}

Texts MeansOfNoMeaning(const Subject& subject) {
  return OnBuffers(NamesOf(subject,
                           [](const TreatedBuffer& treated) {
                             return IsMean(treated.how->operation) &&
                                    LooksLike(treated, kNoMeanWords);
                           }),
                   " look like unit vectors or assignments, of which the mean is none; use "
                   "broadcast");
}

Texts RepeatedSums(const Subject& subject) {
  if (!subject.policy.broadcast_buffers) return {};
  return OnBuffers(
      NamesOf(subject,
              [](const TreatedBuffer& treated) {
                return treated.how->operation == Operation::kSum &&
                       IsRepeating(treated.how->schedule);
              }),
      " are summed again and again: each sync multiplies what the one before has left by the "
      "number of ranks, unless training code resets it; use mean or max, or only command");
}

Texts LargeConstants(const Subject& subject) {
  if (!subject.policy.broadcast_buffers || subject.policy.skip_unchanged) return {};
  std::int64_t bytes = 0;
  const std::vector<std::string> names = NamesOf(subject, [&](const TreatedBuffer& treated) {
    if (treated.how->schedule.every_forwards != 1) return false;
    if (!LooksLike(treated, kConstantWords) || LooksLike(treated, kPruningWords)) return false;
    bytes += treated.buffer->bytes();
    return true;
  });
  if (bytes < kLargeConstantBytes) return {};
  return OnBuffers(names, absl::StrCat(
      " look constant, but are sent before every forward, ",
      absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)),
      " MiB in all; use skip_unchanged or a rarer schedule, or ignore them"));
}

// The gravest first.
constexpr Texts (*kJudgements[])(const Subject&) = {
    Refusals,             RulesWithoutEffect, SchedulesThatTheSwitchEnds, RootsThatAreNoMembers,
    BuffersWithoutValues, UnequalBatchNorms,  RankLocalValues,            MeansOfNoMeaning,
    RepeatedSums,         LargeConstants};

}  // namespace

std::vector<std::string> FindWarnings(const SyncPolicy& policy, const BufferRules& rules,
                                      const Manifest& manifest,
                                      const std::vector<std::string>& members,
                                      const std::vector<std::string>& other_names) {
  Subject subject = {.policy = policy,
                     .rules = rules,
                     .manifest = manifest,
                     .members = members,
                     .names = BufferNames(manifest)};
  subject.names.insert(subject.names.end(), other_names.begin(), other_names.end());
  AddBuffers(subject);
  Texts warnings;
  for (const auto judge : kJudgements) {
    for (std::string& warning : judge(subject)) warnings.push_back(std::move(warning));
  }
  if (warnings.size() > kMaxWarnings) {
    const std::size_t more = warnings.size() - kMaxWarnings;
    warnings.resize(kMaxWarnings);
    warnings.push_back(absl::StrCat("there are ", more, " more warnings"));
  }
  return warnings;
}

}  // namespace lockstep
