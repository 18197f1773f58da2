// The control log: a job's ordered list of decisions, each with one number.
//
// An entry takes effect on all ranks between the same two steps (docs/architecture.md).
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_
#define LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_

#include <optional>
#include <variant>

#include "common/base/ids.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

struct PolicyRevised {
  Revision revision;
  SyncPolicy policy;

  bool operator==(const PolicyRevised&) const = default;
};

// Once, whatever the schedule says.
struct SyncOnce {
  bool buffers = true;  // those that the policy synchronises
  bool parameters = false;
  // With a root all of them are broadcast from it: the manual broadcast of
  // pytorch#30718. Without, each buffer by its rule's operation and root, and
  // parameters from the policy's root.
  std::optional<Root> root = std::nullopt;

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
