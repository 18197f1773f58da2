#include "common/policy/warnings.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"
#include "common/policy/model_check.h"
#include "common/policy/pattern.h"
#include "common/policy/schedule.h"

namespace lockstep {
namespace {

constexpr absl::string_view kBatchNormParts[] = {"running_mean", "running_var",
                                                 "num_batches_tracked"};
// What a rank fills with its own data, and where it stands in it.
constexpr absl::string_view kRankLocalWords[] = {"queue",   "replay", "memory_bank", "history",
                                                 "cursor",  "ptr",    "rng_state"};
// Unit vectors or assignments: their mean is not one of them.
constexpr absl::string_view kNoMeanWords[] = {"queue", "codebook", "prototype", "centroid",
                                              "embedding"};
constexpr absl::string_view kConstantWords[] = {"freqs",   "mask",  "pos_emb", "position_ids",
                                                "anchors", "table", "rope",    "inv_freq"};

using Names = std::vector<std::string>;
// Names by what is said of them.
using Groups = std::map<std::string, Names>;

// "'a', 'b' and 7 more"
std::string List(const Names& names) {
  Names quoted;
  for (const std::string& name : names) quoted.push_back(Quoted(name));
  return ListNames(quoted);
}

std::string Buffers(const Names& names) {
  return absl::StrCat(names.size() == 1 ? "buffer " : "buffers ", List(names));
}

// "bn1" and "running_mean" of "bn1.running_mean".
struct Split {
  std::string layer;
  std::string part;
};
Split SplitLast(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool IsBatchNormPart(absl::string_view part) {
  return std::find(std::begin(kBatchNormParts), std::end(kBatchNormParts), part) !=
         std::end(kBatchNormParts);
}

// Whether a component of the name holds one of the words.
bool LooksLike(const std::string& name, std::span<const absl::string_view> words) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(words.begin(), words.end(),
                     [&](absl::string_view word) { return absl::StrContains(lower, word); });
}

bool IsRepeating(const Schedule& schedule) {
  return schedule.every_forwards > 0 || schedule.every_steps > 0 || schedule.before_evaluation ||
         schedule.before_checkpoint;
}

bool IsMean(Operation operation) {
  return operation == Operation::kMean || operation == Operation::kMeanBySamples;
}

// At start all buffers are broadcast.
bool HasRoot(const Treatment& how) {
  return how.operation == Operation::kBroadcast || how.schedule.at_start;
}

// A buffer and what is done with it; null: nothing.
struct Treated {
  const TensorSpec* buffer = nullptr;
  const Treatment* how = nullptr;
};

class Finder {
 public:
  Finder(const SyncPolicy& policy, const BufferRules& rules, const Manifest& manifest,
         const std::vector<std::string>& members)
      : policy_(policy), rules_(rules), manifest_(manifest), members_(members) {
    for (const TensorSpec& buffer : manifest.buffers) {
      const int treatment = rules.Find(buffer.name).treatment;
      if (treatment >= 0) used_.insert(treatment);
      const Treatment* how =
          treatment < 0 ? nullptr : &rules.treatments()[static_cast<std::size_t>(treatment)];
      if (how != nullptr && how->operation == Operation::kNone) how = nullptr;
      all_.push_back({&buffer, how});
      if (how != nullptr) synced_.push_back(all_.back());
    }
  }

  std::vector<std::string> Find() {
    AddIfRefused(CheckOperations(policy_, manifest_));
    AddIfRefused(CheckPatternsMatch(policy_, manifest_));
    FindRulesWithoutEffect();
    FindMasterSwitch();
    FindMissingRoots();
    FindWithoutValues();
    FindBatchNorms();
    FindRankLocal();
    FindMeansOfNoMeaning();
    FindRepeatedSums();
    FindConstants();
    if (warnings_.size() > kMaxWarnings) {
      const std::size_t more = warnings_.size() - kMaxWarnings;
      warnings_.resize(kMaxWarnings);
      warnings_.push_back(absl::StrCat("there are ", more, " more warnings"));
    }
    return std::move(warnings_);
  }

 private:
  template <typename... Parts>
  void Warn(const Parts&... parts) {
    warnings_.push_back(absl::StrCat(parts...));
  }

  void AddIfRefused(const absl::Status& status) {
    if (!status.ok()) Warn("an update would refuse this policy: ", status.message());
  }

  template <typename Condition>
  Names NamesOf(Condition condition) const {
    Names names;
    for (const Treated& treated : synced_) {
      if (condition(treated)) names.push_back(treated.buffer->name);
    }
    return names;
  }

  std::string RuleName(std::size_t rule) const {
    return absl::StrCat("rules[", rule, "] ", Quoted(policy_.rules[rule].pattern));
  }

  // What decides about a buffer.
  std::string TakerOf(const std::string& name) const {
    const BufferMatch match = rules_.Find(name);
    switch (match.why) {
      case BufferMatch::Why::kNotAllowed:
        return "the allow list";
      case BufferMatch::Why::kIgnored:
        return absl::StrCat("ignore_list[", match.pattern, "] ",
                            Quoted(policy_.ignore_list[static_cast<std::size_t>(match.pattern)]));
      case BufferMatch::Why::kTreated:
        break;
    }
    return RuleName(static_cast<std::size_t>(match.treatment));
  }

  void FindRulesWithoutEffect() {
    for (std::size_t rule = 0; rule < policy_.rules.size(); ++rule) {
      if (used_.contains(static_cast<int>(rule))) continue;
      const absl::StatusOr<Pattern> pattern = Pattern::Parse(policy_.rules[rule].pattern);
      if (!pattern.ok()) continue;
      Names matched;
      for (const TensorSpec& buffer : manifest_.buffers) {
        if (pattern->Matches(buffer.name)) matched.push_back(buffer.name);
      }
      if (matched.empty()) continue;  // a pattern that matches nothing is refused
      Warn(RuleName(rule), " has no effect: what it matches, ", Buffers(matched),
           ", is decided before it (", Quoted(matched.front()), " by ", TakerOf(matched.front()),
           ")");
    }
  }

  void FindMasterSwitch() {
    if (policy_.broadcast_buffers) return;
    // The default schedule is what somebody has who only turns the switch off.
    Groups by_schedule;
    for (const Treated& treated : synced_) {
      const Schedule& schedule = treated.how->schedule;
      if (!IsRepeating(schedule) || schedule == Schedule{}) continue;
      by_schedule[Describe(schedule)].push_back(treated.buffer->name);
    }
    for (const auto& [schedule, names] : by_schedule) {
      Warn("broadcast_buffers is off, so that ", Buffers(names),
           " are synced at start and on command at most, although their schedule says ", schedule);
    }
  }

  void FindMissingRoots() {
    if (members_.empty()) return;
    Groups by_root;
    const auto is_missing = [&](const Root& root) { return ResolveRoot(root, members_).fallback; };
    for (const Treated& treated : synced_) {
      if (HasRoot(*treated.how) && is_missing(treated.how->root)) {
        by_root[Describe(treated.how->root)].push_back(treated.buffer->name);
      }
    }
    const bool of_parameters =
        (policy_.broadcast_parameters_at_start || policy_.broadcast_parameters_every_steps > 0) &&
        is_missing(policy_.root);
    if (of_parameters) by_root[Describe(policy_.root)];
    for (const auto& [root, names] : by_root) {
      const bool also = of_parameters && root == Describe(policy_.root);
      Warn(root, ", the root of ", names.empty() ? "" : Buffers(names),
           names.empty() || !also ? "" : " and of ", also ? "the parameters" : "",
           ", is no member of the current epoch; ", members_.front(), " (rank 0) stands in");
    }
  }

  void FindWithoutValues() {
    const Names names =
        NamesOf([](const Treated& t) { return t.buffer->dtype == DType::kUnspecified; });
    if (names.empty()) return;
    Warn(Buffers(names),
         " held no plain values (sparse, quantized or not materialised) when the model was told; "
         "a sync fails until they do: ignore them, or give them the operation none");
  }

  void FindBatchNorms() {
    std::map<std::string, std::vector<Treated>> layers;
    for (const Treated& treated : all_) {
      const Split split = SplitLast(treated.buffer->name);
      if (!IsBatchNormPart(split.part)) continue;
      layers[split.layer.empty() ? "(the model itself)" : split.layer].push_back(treated);
    }
    Groups partial, by_schedules, by_roots;
    for (const auto& [layer, parts] : layers) {
      Names synced, others, schedules, roots;
      std::set<std::string> different_schedules, different_roots;
      for (const Treated& treated : parts) {
        const std::string part = SplitLast(treated.buffer->name).part;
        (treated.how == nullptr ? others : synced).push_back(part);
        if (treated.how == nullptr) continue;
        const std::string schedule = Describe(treated.how->schedule);
        schedules.push_back(absl::StrCat(part, " ", schedule));
        different_schedules.insert(schedule);
        if (!HasRoot(*treated.how)) continue;
        roots.push_back(absl::StrCat(part, " from ", Describe(treated.how->root)));
        different_roots.insert(RootKey(treated.how->root));
      }
      if (!synced.empty() && !others.empty()) {
        partial[absl::StrCat(absl::StrJoin(synced, ", "), ", but not ",
                             absl::StrJoin(others, ", "))]
            .push_back(layer);
      }
      if (different_schedules.size() > 1) {
        by_schedules[absl::StrJoin(schedules, ", ")].push_back(layer);
      }
      if (different_roots.size() > 1) by_roots[absl::StrJoin(roots, ", ")].push_back(layer);
    }
    for (const auto& [what, names] : partial) {
      Warn("of BatchNorm ", List(names), " only a part is synced: ", what,
           "; the parts of a layer belong together");
    }
    for (const auto& [what, names] : by_schedules) {
      Warn("the parts of BatchNorm ", List(names), " have different schedules: ", what,
           "; in between they are of different batches");
    }
    for (const auto& [what, names] : by_roots) {
      Warn("the parts of BatchNorm ", List(names), " have different roots: ", what,
           "; they are of different batches");
    }
  }

  // Equal for roots that are the same rank.
  std::string RootKey(const Root& root) const {
    if (!members_.empty()) return absl::StrCat(ResolveRoot(root, members_).rank);
    return root == Root(LowestRank{}) ? Describe(RootRank{0}) : Describe(root);
  }

  void FindRankLocal() {
    Groups by_operation;
    for (const Treated& treated : synced_) {
      if (IsBatchNormPart(SplitLast(treated.buffer->name).part)) continue;
      if (!LooksLike(treated.buffer->name, kRankLocalWords)) continue;
      by_operation[std::string(OperationName(treated.how->operation))].push_back(
          treated.buffer->name);
    }
    for (const auto& [operation, names] : by_operation) {
      Warn(Buffers(names), " look like what each rank keeps for itself, but are overwritten by ",
           operation, "; ignore them, or give them the operation none");
    }
  }

  void FindMeansOfNoMeaning() {
    const Names names = NamesOf([](const Treated& treated) {
      return IsMean(treated.how->operation) &&
             !IsBatchNormPart(SplitLast(treated.buffer->name).part) &&
             LooksLike(treated.buffer->name, kNoMeanWords);
    });
    if (names.empty()) return;
    Warn(Buffers(names),
         " look like unit vectors or assignments, of which the mean is none; use broadcast");
  }

  void FindRepeatedSums() {
    const Names names = NamesOf([&](const Treated& treated) {
      return treated.how->operation == Operation::kSum && policy_.broadcast_buffers &&
             IsRepeating(treated.how->schedule);
    });
    if (names.empty()) return;
    Warn(Buffers(names),
         " are summed again and again: each sync multiplies what the one before has left by the "
         "number of ranks, unless training code resets it; use mean or max, or only command");
  }

  void FindConstants() {
    if (!policy_.broadcast_buffers || policy_.skip_unchanged) return;
    std::int64_t bytes = 0;
    const Names names = NamesOf([&](const Treated& treated) {
      if (treated.how->schedule.every_forwards != 1) return false;
      if (!LooksLike(treated.buffer->name, kConstantWords)) return false;
      bytes += treated.buffer->bytes();
      return true;
    });
    if (bytes < kLargeConstantBytes) return;
    Warn(Buffers(names), " look constant, but are sent before every forward, ",
         absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)),
         " MiB in all; use skip_unchanged or a rarer schedule, or ignore them");
  }

  const SyncPolicy& policy_;
  const BufferRules& rules_;
  const Manifest& manifest_;
  const std::vector<std::string>& members_;
  std::vector<Treated> all_;     // in the model's order
  std::vector<Treated> synced_;  // of them
  std::set<int> used_;           // treatments that some buffer has
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> FindWarnings(const SyncPolicy& policy, const BufferRules& rules,
                                      const Manifest& manifest,
                                      const std::vector<std::string>& members) {
  return Finder(policy, rules, manifest, members).Find();
}

}  // namespace lockstep
