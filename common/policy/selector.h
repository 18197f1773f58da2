// BufferSelector: a policy's lists, compiled: does it select this buffer?
//
// Pure; thread-safe after construction.
#ifndef LOCKSTEP_COMMON_POLICY_SELECTOR_H_
#define LOCKSTEP_COMMON_POLICY_SELECTOR_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/policy/pattern.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

class BufferSelector {
 public:
  // Errors: those of Validate(policy).
  static absl::StatusOr<BufferSelector> Compile(const SyncPolicy& policy);

  // Whether the lists select the buffer; the master switch plays no part.
  bool Selects(absl::string_view name) const;

 private:
  BufferSelector() = default;

  std::vector<Pattern> allow_;
  std::vector<Pattern> ignore_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_SELECTOR_H_
