// SyncPolicy: which buffers are kept equal on all ranks, by which operation, from
// which root, when.
//
// A value, and the checks on it by itself. What it means for a buffer is in
// buffer_rules.h, when that is due in schedule.h, whether it fits a model in
// model_check.h. Pure; thread-compatible.
#ifndef LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_
#define LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/policy/operation.h"
#include "common/policy/pattern.h"

namespace lockstep {

// Bounds on what a client may set.
inline constexpr int kMaxPatterns = 1000;  // in each list
inline constexpr int kMaxRules = 1000;
// Of all patterns, by Pattern::size(): 100 for each of those that are allowed.
inline constexpr int kMaxPatternSizes = 300'000;
// Of all patterns and names of roots, so that a hundred policies fit a message.
inline constexpr int kMaxPolicyBytes = 256 << 10;
inline constexpr int kMaxRootWorkerBytes = 253;

// The rank whose value wins.
struct LowestRank {
  bool operator==(const LowestRank&) const = default;
};
struct RootRank {
  std::int64_t rank = 0;
  bool operator==(const RootRank&) const = default;
};
struct RootWorker {  // follows the worker when ranks change
  std::string worker;
  bool operator==(const RootWorker&) const = default;
};
using Root = std::variant<LowestRank, RootRank, RootWorker>;

// When syncs are due. Several may be on at once; none: only on command. See
// schedule.h for the rules.
struct Schedule {
  // When an epoch starts, before the first step. Independent of the master
  // switch: replicas start equal even if they may drift later (pytorch#111138).
  bool at_start = true;
  // Before every k-th training forward; 0: never.
  std::int64_t every_forwards = 1;
  // After every n-th step; 0: never.
  std::int64_t every_steps = 0;
  // Before each evaluation.
  bool before_evaluation = false;
  // Before each checkpoint.
  bool before_checkpoint = false;

  bool operator==(const Schedule&) const = default;
};

// How buffers of matching names are treated. What is not set is the policy's.
struct SyncRule {
  std::string pattern;
  std::optional<Operation> operation = std::nullopt;
  std::optional<Root> root = std::nullopt;
  std::optional<Schedule> schedule = std::nullopt;

  bool operator==(const SyncRule&) const = default;
};

struct SyncPolicy {
  // The master switch, as in DDP: off, no buffer is due while training runs.
  bool broadcast_buffers = true;
  // Patterns on full buffer names. Empty: all buffers.
  std::vector<std::string> allow_list;
  // Wins over allow_list.
  std::vector<std::string> ignore_list;
  // For buffers that pass the lists; the first match decides.
  std::vector<SyncRule> rules;
  // For those that no rule matches:
  Operation operation = Operation::kBroadcast;
  Root root = LowestRank{};  // also of parameters
  Schedule schedule;
  // Leave out buffers that no rank has changed since they were last made equal.
  bool skip_unchanged = false;

  // Parameters are broadcast from the root when an epoch starts.
  bool broadcast_parameters_at_start = true;
  // And again after every n-th step; 0: never.
  std::int64_t broadcast_parameters_every_steps = 0;
  // They are compared among ranks after every n-th step; 0: never.
  std::int64_t check_parameters_every_steps = 0;

  bool operator==(const SyncPolicy&) const = default;
};

// Checks the policy by itself. Errors: InvalidArgument names the field, what was
//   given and what is allowed (malformed pattern, negative period, a bound).
absl::Status Validate(const SyncPolicy& policy);

// A policy's patterns, compiled, in order.
struct PolicyPatterns {
  std::vector<Pattern> allow_list;
  std::vector<Pattern> ignore_list;
  std::vector<Pattern> rules;
};
// Errors: those of Validate().
absl::StatusOr<PolicyPatterns> CompilePatterns(const SyncPolicy& policy);

// Differs whenever policies differ, but for chance.
std::uint64_t Digest(const SyncPolicy& policy);

// For people: "the lowest rank", "rank 2", "worker w1".
std::string Describe(const Root& root);
// "at start and every 2 forwards", "on command only".
std::string Describe(const Schedule& schedule);
// "**.running_* by mean, every 100 steps": what the rule sets.
std::string Describe(const SyncRule& rule);
// "broadcast at start and compared every 50 steps".
std::string DescribeParameters(const SyncPolicy& policy);
// One line: "on; allow **.running_*; from worker w2; at start and before every
// forward": whether it is on and when, else what differs from the default. Of
// many patterns or rules the first, and a count.
std::string Describe(const SyncPolicy& policy);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_
