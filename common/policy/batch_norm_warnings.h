// Warnings about BatchNorm layers whose parts are not treated alike: running mean,
// running variance and counter are of the same batches, or of none.
//
// Pure functions over values.
#ifndef LOCKSTEP_COMMON_POLICY_BATCH_NORM_WARNINGS_H_
#define LOCKSTEP_COMMON_POLICY_BATCH_NORM_WARNINGS_H_

#include <string>
#include <vector>

#include "common/policy/warning_parts.h"

namespace lockstep {

// Whether a buffer is a part of a BatchNorm, by its name.
bool IsBatchNormPart(const std::string& name);

// Layers only a part of which is synced, whose parts differ in schedule, or in root:
// the same of many layers is said once. `members`: worker names by rank; may be empty.
std::vector<std::string> FindBatchNormWarnings(const std::vector<TreatedBuffer>& buffers,
                                               const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_POLICY_BATCH_NORM_WARNINGS_H_
