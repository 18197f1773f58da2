#include "tests/oracle/naive_policy.h"

#include <algorithm>
#include <regex>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"

namespace lockstep {
namespace {

bool GlobMatches(absl::string_view glob, absl::string_view name, bool at_component = true) {
  if (glob.empty()) return name.empty();
  if (at_component && absl::StartsWith(glob, "**.")) {
    if (GlobMatches(glob.substr(3), name, true)) return true;
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '.' && GlobMatches(glob.substr(3), name.substr(i + 1), true)) return true;
    }
    return false;
  }
  if (glob[0] == '*') {
    const bool across = absl::StartsWith(glob, "**");
    for (std::size_t i = 0; i <= name.size(); ++i) {
      if (GlobMatches(glob.substr(across ? 2 : 1), name.substr(i), false)) return true;
      if (i < name.size() && name[i] == '.' && !across) return false;
    }
    return false;
  }
  return !name.empty() && glob[0] == name[0] &&
         GlobMatches(glob.substr(1), name.substr(1), glob[0] == '.');
}

bool AnyMatches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return NaiveMatches(pattern, name); });
}

bool IsEvery(std::int64_t period, std::int64_t count) {
  return period > 0 && count % period == 0;
}

bool IsComplex(DType dtype) {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

}  // namespace

bool NaiveMatches(absl::string_view pattern, const std::string& name) {
  if (!absl::StartsWith(pattern, "re:")) return GlobMatches(pattern, name);
  static thread_local std::map<std::string, std::regex> compiled;  // takes its time
  const std::string text(pattern.substr(3));
  const auto expression = compiled.try_emplace(text, text).first;
  return std::regex_match(name, expression->second);
}

bool NaiveIsDefined(Operation operation, DType dtype) {
  const bool is_integer = dtype <= DType::kUint64;
  const bool is_scale = dtype == DType::kFloat8E8m0fnu;
  switch (operation) {
    case Operation::kMean:
    case Operation::kMeanBySamples:
      return !is_integer && !is_scale;
    case Operation::kSum:
      return !is_scale;
    case Operation::kMin:
    case Operation::kMax:
      return !IsComplex(dtype);
    default:
      return true;
  }
}

std::optional<std::size_t> NaiveRuleOf(const SyncPolicy& policy, const std::string& name) {
  if (!policy.allow_list.empty() && !AnyMatches(policy.allow_list, name)) return std::nullopt;
  if (AnyMatches(policy.ignore_list, name)) return std::nullopt;
  std::size_t rule = 0;
  while (rule < policy.rules.size() && !NaiveMatches(policy.rules[rule].pattern, name)) ++rule;
  return rule;
}

Operation NaiveOperationOf(const SyncPolicy& policy, std::size_t rule) {
  if (rule == policy.rules.size()) return policy.operation;
  return policy.rules[rule].operation.value_or(policy.operation);
}

NaivePolicy::NaivePolicy(SyncPolicy policy, std::vector<std::string> members)
    : members_(std::move(members)) {
  PutInForce(Revision(1), policy);
}

void NaivePolicy::Start(NaiveBuffers& buffers) {
  Sync([](const Schedule& schedule) { return schedule.at_start; },
       [&](std::size_t rule) { return Manner{.root = RankOf(RootOf(rule))}; }, buffers);
}

void NaivePolicy::Forward(NaiveBuffers& buffers) {
  if (std::exchange(forward_seen_, true)) return;
  ++forwards_;
  SyncIfOn([&](const Schedule& schedule) { return IsEvery(schedule.every_forwards, forwards_); },
           buffers);
}

bool NaivePolicy::Step(const std::vector<std::int64_t>& samples,
                       const std::vector<ControlEntry>& agreed, NaiveBuffers& buffers) {
  if (std::all_of(samples.begin(), samples.end(), [](std::int64_t n) { return n == 0; })) {
    return false;
  }
  ++steps_;
  forward_seen_ = false;
  for (std::vector<std::int64_t>& of_rule : samples_) {
    for (std::size_t rank = 0; rank < samples.size(); ++rank) of_rule[rank] += samples[rank];
  }
  SyncIfOn([&](const Schedule& schedule) { return IsEvery(schedule.every_steps, steps_); },
           buffers);
  for (const ControlEntry& entry : agreed) {
    if (const auto* revised = std::get_if<PolicyRevised>(&entry.decision)) {
      PutInForce(revised->revision, revised->policy);
    } else if (const SyncOnce& once = std::get<SyncOnce>(entry.decision); !once.buffers) {
      continue;
    } else if (once.root.has_value()) {
      BroadcastBuffers(*once.root, buffers);
    } else {
      SyncBuffers(buffers);
    }
  }
  return true;
}

void NaivePolicy::Evaluation(NaiveBuffers& buffers) {
  SyncIfOn([](const Schedule& schedule) { return schedule.before_evaluation; }, buffers);
}

void NaivePolicy::Checkpoint(NaiveBuffers& buffers) {
  SyncIfOn([](const Schedule& schedule) { return schedule.before_checkpoint; }, buffers);
}

void NaivePolicy::SyncBuffers(NaiveBuffers& buffers) {
  Sync([](const Schedule&) { return true; }, [&](std::size_t rule) { return AsRuled(rule); },
       buffers);
}

void NaivePolicy::BroadcastBuffers(const Root& root, NaiveBuffers& buffers) {
  Sync([](const Schedule&) { return true; },
       [&](std::size_t) { return Manner{.root = RankOf(root)}; }, buffers);
}

void NaivePolicy::PutInForce(Revision revision, const SyncPolicy& policy) {
  revision_ = revision;
  policy_ = policy;
  samples_.assign(policy.rules.size() + 1, std::vector<std::int64_t>(members_.size(), 0));
}

int NaivePolicy::RankOf(const Root& root) const {
  const auto world_size = static_cast<int>(members_.size());
  for (int rank = 0; rank < world_size; ++rank) {
    if (root == Root(RootRank{rank}) || root == Root(RootWorker{members_[rank]})) return rank;
  }
  return 0;
}

const Schedule& NaivePolicy::ScheduleOf(std::size_t rule) const {
  const bool has_own = rule < policy_.rules.size() && policy_.rules[rule].schedule.has_value();
  return has_own ? *policy_.rules[rule].schedule : policy_.schedule;
}

const Root& NaivePolicy::RootOf(std::size_t rule) const {
  const bool has_own = rule < policy_.rules.size() && policy_.rules[rule].root.has_value();
  return has_own ? *policy_.rules[rule].root : policy_.root;
}

NaivePolicy::Manner NaivePolicy::AsRuled(std::size_t rule) const {
  Manner manner = {.operation = NaiveOperationOf(policy_, rule), .root = RankOf(RootOf(rule))};
  const std::vector<std::int64_t>& samples = samples_[rule];
  if (manner.operation == Operation::kMeanBySamples &&
      std::any_of(samples.begin(), samples.end(), [](std::int64_t n) { return n > 0; })) {
    manner.weights.assign(samples.begin(), samples.end());
  }
  return manner;
}

void NaivePolicy::SyncIfOn(const IsDue& is_due, NaiveBuffers& buffers) {
  if (!policy_.broadcast_buffers) return;
  Sync(is_due, [&](std::size_t rule) { return AsRuled(rule); }, buffers);
}

void NaivePolicy::Sync(const IsDue& is_due,
                       const std::function<Manner(std::size_t rule)>& manner_of,
                       NaiveBuffers& buffers) {
  std::set<std::size_t> done;  // a tensor is synchronised under its first name that is due
  for (const NaiveBuffers::Name& named : buffers.names) {
    const std::optional<std::size_t> rule = NaiveRuleOf(policy_, named.name);
    if (!rule.has_value() || NaiveOperationOf(policy_, *rule) == Operation::kNone) continue;
    if (!is_due(ScheduleOf(*rule)) || !done.insert(named.tensor).second) continue;
    SyncOne(named.name, manner_of(*rule), buffers.tensors[named.tensor]);
  }
  for (std::size_t rule = 0; rule < samples_.size(); ++rule) {
    if (is_due(ScheduleOf(rule))) samples_[rule].assign(members_.size(), 0);
  }
}

void NaivePolicy::SyncOne(const std::string& name, const Manner& manner,
                          NaiveBuffers::Tensor& tensor) {
  const auto equal = equal_.find(name);
  const bool is_unchanged =
      equal != equal_.end() &&
      std::all_of(tensor.by_rank.begin(), tensor.by_rank.end(),
                  [&](const Bytes& bytes) { return bytes == equal->second; });
  if (policy_.skip_unchanged && is_unchanged && manner.operation != Operation::kSum) return;
  const auto reduce = [&](ReduceOp op) {
    return NaiveReduce(tensor.dtype, op, manner.weights, tensor.by_rank);
  };
  Bytes result;
  switch (manner.operation) {
    case Operation::kUnspecified:
    case Operation::kNone:
      return;
    case Operation::kBroadcast:
      result = tensor.by_rank[manner.root];
      break;
    case Operation::kMean:
    case Operation::kMeanBySamples:
      result = reduce(ReduceOp::kMean);
      break;
    case Operation::kSum:
      result = reduce(ReduceOp::kSum);
      break;
    case Operation::kMin:
      result = reduce(ReduceOp::kMin);
      break;
    case Operation::kMax:
      result = reduce(ReduceOp::kMax);
      break;
  }
  for (Bytes& bytes : tensor.by_rank) bytes = result;
  if (policy_.skip_unchanged) equal_[name] = result;
}

}  // namespace lockstep
