// What differs between two sync policies: their fields, and what is done with a
// model's buffers.
//
// Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_DIFF_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_DIFF_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

struct FieldChange {
  enum class Kind { kRemoved, kAdded, kChanged };
  Kind kind = Kind::kChanged;
  std::string field;   // "allow_list", "rules[1]", "schedule.every_steps"
  std::string before;  // empty if added
  std::string after;   // empty if removed

  bool operator==(const FieldChange&) const = default;
};

// Field by field, defaults written out, so that a default that is spelled out is
// no change. Rules by index, from 0, before or after the change. Errors:
// InvalidArgument: a policy that Validate() refuses, as one of a newer coordinator.
absl::StatusOr<std::vector<FieldChange>> DiffPolicies(const v1::SyncPolicy& before,
                                                      const v1::SyncPolicy& after);

struct BufferChange {
  std::string name;
  std::string before;  // as DescribeTreatment() words it
  std::string after;

  bool operator==(const BufferChange&) const = default;
};

// Buffers that are treated differently; those that only one side has are left out.
std::vector<BufferChange> DiffTreatments(const v1::PreviewSyncPolicyResponse& before,
                                         const v1::PreviewSyncPolicyResponse& after);

struct PolicyDiff {
  std::string before;  // "revision 2"
  std::string after;
  std::vector<FieldChange> fields;
  std::optional<std::vector<BufferChange>> buffers;  // nothing: no model is known
};

// Lines as "~ schedule.every_steps: 0 -> 100", then the first 20 buffers and how
// many there are. "no difference" if so.
std::string RenderDiff(const PolicyDiff& diff);
// All of it; `buffers` is null where no model is known.
std::string RenderDiffJson(const PolicyDiff& diff);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_DIFF_H_
