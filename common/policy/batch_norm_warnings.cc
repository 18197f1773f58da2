#include "common/policy/batch_norm_warnings.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/policy/schedule.h"
#include "common/policy/sync_policy.h"

namespace lockstep {
namespace {

constexpr absl::string_view kParts[] = {"running_mean", "running_var", "num_batches_tracked"};

// "bn1" and "running_mean" of "bn1.running_mean".
struct Split {
  std::string layer;
  std::string part;
};
Split SplitLast(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"(the model itself)", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

struct Part {
  std::string name;
  const Treatment* how = nullptr;
};

// Equal for roots that are the same rank.
std::string RootKey(const Root& root, const std::vector<std::string>& members) {
  if (!members.empty()) return absl::StrCat(ResolveRoot(root, members).rank);
  return root == Root(LowestRank{}) ? Describe(RootRank{0}) : Describe(root);
}

// What is said of the parts of a layer; empty: nothing.
std::string OnlySomeAreSynced(const std::vector<Part>& parts) {
  std::vector<std::string> synced, others;
  for (const Part& part : parts) (part.how == nullptr ? others : synced).push_back(part.name);
  if (synced.empty() || others.empty()) return "";
  return absl::StrCat(absl::StrJoin(synced, ", "), ", but not ", absl::StrJoin(others, ", "));
}

std::string SchedulesDiffer(const std::vector<Part>& parts) {
  std::vector<std::string> texts;
  std::set<std::string> different;
  for (const Part& part : parts) {
    if (part.how == nullptr) continue;
    const std::string schedule = Describe(part.how->schedule);
    texts.push_back(absl::StrCat(part.name, " ", schedule));
    different.insert(schedule);
  }
  return different.size() > 1 ? absl::StrJoin(texts, ", ") : "";
}

std::string RootsDiffer(const std::vector<Part>& parts, const std::vector<std::string>& members) {
  std::vector<std::string> texts;
  std::set<std::string> different;
  for (const Part& part : parts) {
    if (part.how == nullptr || !HasRoot(*part.how)) continue;
    texts.push_back(absl::StrCat(part.name, " from ", Describe(part.how->root)));
    different.insert(RootKey(part.how->root, members));
  }
  return different.size() > 1 ? absl::StrJoin(texts, ", ") : "";
}

}  // namespace

bool IsBatchNormPart(const std::string& name) {
  return std::find(std::begin(kParts), std::end(kParts), SplitLast(name).part) != std::end(kParts);
}

std::vector<std::string> FindBatchNormWarnings(const std::vector<TreatedBuffer>& buffers,
                                               const std::vector<std::string>& members) {
  std::map<std::string, std::vector<Part>> layers;
  for (const TreatedBuffer& treated : buffers) {
    if (!IsBatchNormPart(treated.buffer->name)) continue;
    const Split split = SplitLast(treated.buffer->name);
    layers[split.layer].push_back({split.part, treated.how});
  }
  NameGroups partial, by_schedules, by_roots;
  const auto add = [](const std::string& what, const std::string& layer, NameGroups& groups) {
    if (!what.empty()) groups[what].push_back(layer);
  };
  for (const auto& [layer, parts] : layers) {
    add(OnlySomeAreSynced(parts), layer, partial);
    add(SchedulesDiffer(parts), layer, by_schedules);
    add(RootsDiffer(parts, members), layer, by_roots);
  }
  std::vector<std::string> warnings;
  for (const auto& [what, names] : partial) {
    warnings.push_back(absl::StrCat("of BatchNorm ", ListQuoted(names), " only a part is synced: ",
                                    what, "; the parts of a layer belong together"));
  }
  for (const auto& [what, names] : by_schedules) {
    warnings.push_back(absl::StrCat("the parts of BatchNorm ", ListQuoted(names),
                                    " have different schedules: ", what,
                                    "; in between they are of different batches"));
  }
  for (const auto& [what, names] : by_roots) {
    warnings.push_back(absl::StrCat("the parts of BatchNorm ", ListQuoted(names),
                                    " have different roots: ", what,
                                    "; they are of different batches"));
  }
  return warnings;
}

}  // namespace lockstep
