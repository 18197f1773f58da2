// The control log: a job's ordered list of decisions, each with one number.
//
// An entry takes effect on all ranks between the same two steps (docs/architecture.md).
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_
#define LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_

#include <optional>
#include <string>
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

// Members end the epoch together, behind the step at which this takes effect, and a
// new one forms: with the workers that wait, or, if `drain` names a member, without it.
struct Regroup {
  std::string drain;  // empty: nobody is put out

  bool operator==(const Regroup&) const = default;
};

// A checkpoint behind the step at which this takes effect, whatever the schedule says.
struct CheckpointOnce {
  bool operator==(const CheckpointOnce&) const = default;
};

using Decision = std::variant<PolicyRevised, SyncOnce, Regroup, CheckpointOnce>;

struct ControlEntry {
  LogNumber number;
  Decision decision;

  bool operator==(const ControlEntry&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PROTOCOL_CONTROL_LOG_H_
