// Warnings: what of a policy may not be meant, judged by the names, types and
// sizes of a model's buffers. Nothing here is refused on their account.
//
// Pure functions over values.
#ifndef LOCKSTEP_COMMON_POLICY_WARNINGS_H_
#define LOCKSTEP_COMMON_POLICY_WARNINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/policy/buffer_rules.h"
#include "common/policy/sync_policy.h"

namespace lockstep {

inline constexpr int kMaxWarnings = 20;
// Buffers that look constant are worth a warning from this size on, in all.
inline constexpr std::int64_t kLargeConstantBytes = 1 << 20;

// Sentences for people, each of which names buffers: what an update would refuse
// first, then what does nothing, then what may harm the training or its speed.
// Of more than kMaxWarnings the first, and a count of the others.
// `rules`: of `policy`. `members`: worker names by rank; empty: there is no epoch.
// `other_names`: of buffers that the model has not, but a worker.
std::vector<std::string> FindWarnings(const SyncPolicy& policy, const BufferRules& rules,
                                      const Manifest& manifest,
                                      const std::vector<std::string>& members,
                                      const std::vector<std::string>& other_names = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_WARNINGS_H_
