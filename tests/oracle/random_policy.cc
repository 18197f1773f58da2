#include "tests/oracle/random_policy.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lockstep {
namespace {

// Reductions more often: only so can they be compared often.
constexpr Operation kOperations[] = {
    Operation::kBroadcast, Operation::kMean, Operation::kMean, Operation::kSum,
    Operation::kMin,       Operation::kMin,  Operation::kMax,  Operation::kMax,
    Operation::kNone,      Operation::kMeanBySamples, Operation::kMeanBySamples};

// Of a name such as "block_1.float_7", the part of its last component that names
// the kind of its type.
std::string KindOf(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return last.substr(0, last.find('_'));
}

// Matches `name`, mostly.
std::string RandomPattern(Prng& prng, const std::string& name) {
  std::vector<std::string> components = absl::StrSplit(name, '.');
  switch (prng.Below(24)) {
    case 0:
      return "**";
    case 1:
      return name;
    case 2:
      components[prng.Below(components.size())].assign(1, '*');
      return absl::StrJoin(components, ".");
    case 3:
      return absl::StrCat("**.", components.back());
    case 4:
      return absl::StrCat(components.front(), components.size() > 1 ? ".**" : "");
    case 5:
      components.back() = absl::StrCat("*_", prng.Below(30));
      return absl::StrJoin(components, ".");
    case 6:
      return absl::StrCat("**", prng.Below(10));
    case 7:
      return "re:.*[02468]";
    case 8:
      return absl::StrCat("re:(", components.front(), "|block_2)(\\..*)?");
    case 9:
      return absl::StrCat("re:(.*\\.)?", KindOf(name), "_\\d+");
    case 10:
      return absl::StrCat("*.", components.back());
    case 11:
      return absl::StrCat("**.", KindOf(name), "_*", name.substr(name.size() - 1));
    default:
      return absl::StrCat("**.", KindOf(name), "_*");
  }
}

std::vector<std::string> RandomPatterns(Prng& prng, std::int64_t count,
                                        const NaiveBuffers& buffers) {
  std::vector<std::string> patterns;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string& name = buffers.names[prng.Below(buffers.names.size())].name;
    patterns.push_back(prng.Below(15) == 0 ? "absent.**" : RandomPattern(prng, name));
  }
  return patterns;
}

std::int64_t RandomPeriod(Prng& prng) {
  return prng.Below(3) == 0 ? 0 : prng.Between(1, 3);
}

Schedule RandomSchedule(Prng& prng) {
  return {.at_start = prng.Below(3) != 0,
          .every_forwards = RandomPeriod(prng),
          .every_steps = RandomPeriod(prng),
          .before_evaluation = prng.Below(2) == 0,
          .before_checkpoint = prng.Below(2) == 0};
}

// One that is defined for all buffers that have the policy's own operation
// (`rule` is nothing), or that of the rule.
Operation RandomOperation(Prng& prng, const SyncPolicy& policy, std::optional<std::size_t> rule,
                          const NaiveBuffers& buffers) {
  const auto decides_on = [&](const std::string& name) {
    const std::optional<std::size_t> decider = NaiveRuleOf(policy, name);
    if (!decider.has_value()) return false;
    if (rule.has_value()) return *decider == *rule;
    return *decider == policy.rules.size() || !policy.rules[*decider].operation.has_value();
  };
  while (true) {
    const Operation operation = kOperations[prng.Below(std::size(kOperations))];
    if (std::all_of(buffers.names.begin(), buffers.names.end(),
                    [&](const NaiveBuffers::Name& named) {
                      return !decides_on(named.name) ||
                             NaiveIsDefined(operation, buffers.tensors[named.tensor].dtype);
                    })) {
      return operation;
    }
  }
}

}  // namespace

Root RandomRoot(Prng& prng, const std::vector<std::string>& members) {
  const auto world_size = static_cast<std::int64_t>(members.size());
  switch (prng.Below(5)) {
    case 0:
      return LowestRank{};
    case 1:
      return RootWorker{"absent"};
    case 2:
      return RootWorker{members[prng.Below(members.size())]};
    default:
      return RootRank{prng.Between(0, world_size)};  // the last is no member
  }
}

SyncPolicy RandomPolicy(Prng& prng, const NaiveBuffers& buffers,
                        const std::vector<std::string>& members) {
  SyncPolicy policy = {.broadcast_buffers = prng.Below(6) != 0,
                       .root = RandomRoot(prng, members),
                       .schedule = RandomSchedule(prng),
                       .skip_unchanged = prng.Below(3) == 0};
  if (prng.Below(4) == 0) policy.allow_list = RandomPatterns(prng, prng.Between(2, 5), buffers);
  if (prng.Below(3) == 0) policy.ignore_list = RandomPatterns(prng, prng.Between(1, 2), buffers);
  for (std::string& pattern : RandomPatterns(prng, prng.Between(0, 6), buffers)) {
    SyncRule& rule = policy.rules.emplace_back();
    rule.pattern = std::move(pattern);
    if (prng.Below(6) != 0) rule.operation = Operation::kUnspecified;  // drawn below
    if (prng.Below(2) == 0) rule.root = RandomRoot(prng, members);
    if (prng.Below(2) == 0) rule.schedule = RandomSchedule(prng);
  }
  for (std::size_t rule = 0; rule < policy.rules.size(); ++rule) {
    if (!policy.rules[rule].operation.has_value()) continue;
    policy.rules[rule].operation = RandomOperation(prng, policy, rule, buffers);
  }
  policy.operation = RandomOperation(prng, policy, std::nullopt, buffers);
  return policy;
}

SyncPolicy WithIllegalRule(Prng& prng, SyncPolicy policy, const NaiveBuffers& buffers) {
  const NaiveBuffers::Name& named = buffers.names[prng.Below(buffers.names.size())];
  const Operation operation = kOperations[prng.Below(std::size(kOperations))];
  if (NaiveIsDefined(operation, buffers.tensors[named.tensor].dtype)) return policy;
  policy.rules.insert(policy.rules.begin(), {.pattern = named.name, .operation = operation});
  return policy;
}

std::vector<std::string> NaiveIllegal(const SyncPolicy& policy, const NaiveBuffers& buffers) {
  std::vector<std::string> names;
  for (const NaiveBuffers::Name& named : buffers.names) {
    const std::optional<std::size_t> rule = NaiveRuleOf(policy, named.name);
    if (!rule.has_value()) continue;
    if (NaiveIsDefined(NaiveOperationOf(policy, *rule), buffers.tensors[named.tensor].dtype)) {
      continue;
    }
    names.push_back(named.name);
  }
  return names;
}

}  // namespace lockstep
