// SyncPolicy: which buffers are kept equal on all ranks, from which root, when.
//
// A value, and the checks on it. It does not select (selector.h) or decide when
// (schedule.h). Pure; thread-compatible.
#ifndef LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_
#define LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/manifest/manifest.h"
#include "common/policy/pattern.h"

namespace lockstep {

// Bounds on what a client may set.
inline constexpr int kMaxPatterns = 1000;  // in each list
inline constexpr int kMaxRootWorkerBytes = 253;

// How ranks' values become one. Wire values: never renumber.
enum class Operation : std::int32_t {
  kUnspecified = 0,
  kBroadcast = 1,  // the root's value wins
};

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

// When syncs are due. Several may be on at once; see schedule.h for the rules.
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

  bool operator==(const Schedule&) const = default;
};

struct SyncPolicy {
  // The master switch, as in DDP: off, nothing is due while training runs.
  bool broadcast_buffers = true;
  // Patterns on full buffer names. Empty: all buffers.
  std::vector<std::string> allow_list;
  // Wins over allow_list.
  std::vector<std::string> ignore_list;
  Operation operation = Operation::kBroadcast;
  Root root = LowestRank{};
  Schedule schedule;
  // Parameters are broadcast from the root when an epoch starts.
  bool broadcast_parameters_at_start = true;

  bool operator==(const SyncPolicy&) const = default;
};

// Checks the policy by itself. Errors: InvalidArgument names the field, what was
//   given and what is allowed (malformed pattern, negative period, a bound).
absl::Status Validate(const SyncPolicy& policy);

// Checks that each pattern of the policy matches a buffer of the model. Errors:
//   InvalidArgument names each pattern that matches nothing (the first five, and
//   counts the others) and up to three buffer names that are near to it; or a
//   pattern that is malformed.
absl::Status CheckPatternsMatch(const SyncPolicy& policy, const Manifest& manifest);

// One line for people: "broadcast_buffers on, allow **.running_*, ...".
std::string Describe(const SyncPolicy& policy);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_SYNC_POLICY_H_
