// In which respects models must be equal to be trained together: parameters,
// optimizer, and the buffers that a policy synchronises. What is excluded may
// differ among ranks, or be missing on some (pytorch#68803).
#ifndef LOCKSTEP_COORDINATOR_CORE_MODEL_COMPARISON_H_
#define LOCKSTEP_COORDINATOR_CORE_MODEL_COMPARISON_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

// Pure but for what it remembers to save work; thread-compatible.
class ModelComparison {
 public:
  // `policy` is valid and outlives it. `rules`: compiled from it, if they are.
  explicit ModelComparison(const SyncPolicy& policy,
                           std::optional<BufferRules> rules = std::nullopt)
      : policy_(policy), rules_(std::move(rules)) {}

  // The first difference that matters, as one line that names the tensor and
  // both views. Nothing if there is none. Only buffers between the first and the
  // last that are not alike cost a look at a pattern; if that is too much work, it
  // is a difference.
  std::optional<std::string> FirstDifference(const std::string& a_name, const Manifest& a,
                                             const std::string& b_name, const Manifest& b);

 private:
  const BufferRules& Rules();
  bool IsSynchronised(const std::string& buffer);
  std::vector<TensorSpec> Synchronised(std::span<const TensorSpec> buffers);

  const SyncPolicy& policy_;
  std::optional<BufferRules> rules_;         // once needed
  std::map<std::string, bool> synchronised_;  // buffers looked at so far
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_MODEL_COMPARISON_H_
