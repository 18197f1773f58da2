// Preview: what a policy does to each buffer of a model, and what that costs.
//
// Pure functions over values.
#ifndef LOCKSTEP_COMMON_POLICY_PREVIEW_H_
#define LOCKSTEP_COMMON_POLICY_PREVIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

// What is done with one buffer.
struct BufferPreview {
  enum class Selection {
    kSynced,
    kNotAllowed,  // the allow list does not name it
    kIgnored,     // the ignore list names it
    kRankLocal,   // Operation::kNone
  };
  std::string name;
  std::string type;  // "float32[64]"
  Selection selection = Selection::kSynced;
  std::string pattern;  // that decided; empty: none, the policy's defaults
  std::optional<int> rule;  // index in rules, from 0; nothing: the policy's defaults
  // Of a buffer that is synced:
  Operation operation = Operation::kUnspecified;
  Root root;                // whose value wins in a broadcast, at start included
  std::string root_worker;  // that root, or who stands in; empty: no members
  Schedule schedule;  // what the master switch leaves of it
  std::int64_t bytes = 0;  // of one sync

  bool operator==(const BufferPreview&) const = default;
};

// What one occasion costs.
struct SyncCost {
  std::int64_t buffers = 0;
  // One for each operation and root that moves bytes, and, as for kMeanBySamples
  // ranks count by what was since the last sync, for each schedule of that.
  std::int64_t transfers = 0;
  std::int64_t bytes = 0;      // size of the tensors, before transports multiply it

  bool operator==(const SyncCost&) const = default;
};

struct PolicyPreview {
  std::vector<BufferPreview> buffers;  // in the model's order
  SyncCost at_start;                   // by broadcast, whatever the operation
  SyncCost before_forward;             // one for which all that is ever due then is due
  SyncCost after_step;                 // likewise
  SyncCost before_evaluation;
  SyncCost before_checkpoint;
  SyncCost on_command;  // by the rules' operations
  std::int64_t total_buffers = 0;
  std::int64_t synced_buffers = 0;
  std::vector<std::string> warnings;  // of warnings.h
};

// `members`: worker names by rank; empty: there is no epoch. One member alone costs
// nothing. `other_names`: of buffers that the model has not, but a worker.
// Errors: those of Validate(policy) and CheckMatchWork() (model_check.h).
absl::StatusOr<PolicyPreview> Preview(const SyncPolicy& policy, const Manifest& manifest,
                                      const std::vector<std::string>& members,
                                      const std::vector<std::string>& other_names = {});

// Of that the `count` buffers from `first` on, or as many as there are.
absl::StatusOr<std::vector<BufferPreview>> PreviewBuffers(const SyncPolicy& policy,
                                                          const Manifest& manifest,
                                                          const std::vector<std::string>& members,
                                                          std::int64_t first, std::int64_t count);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_PREVIEW_H_
