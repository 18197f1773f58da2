// The control log: a job's ordered list of decisions, each with one number.
//
// An entry takes effect on all ranks between the same two steps (docs/architecture.md).
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_
#define LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_

#include <variant>

#include "common/base/ids.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

struct PolicyRevised {
  Revision revision;
  SyncPolicy policy;

  bool operator==(const PolicyRevised&) const = default;
};

// The manual broadcast of pytorch#30718: once, whatever the schedule says.
struct SyncOnce {
  bool buffers = true;  // those that the policy's lists select
  bool parameters = false;
  Root root = LowestRank{};

  bool operator==(const SyncOnce&) const = default;
};

using Decision = std::variant<PolicyRevised, SyncOnce>;

struct ControlEntry {
  LogNumber number;
  Decision decision;

  bool operator==(const ControlEntry&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_
