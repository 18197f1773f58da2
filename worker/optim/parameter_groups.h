// Which settings the elements of a shard have: the optimizer's groups, found by
// the names of a model's parameters. Pure functions.
#ifndef LOCKSTEP_WORKER_OPTIM_PARAMETER_GROUPS_H_
#define LOCKSTEP_WORKER_OPTIM_PARAMETER_GROUPS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/sharding/shard_plan.h"
#include "worker/optim/shard_optimizer.h"

namespace lockstep {

// Checks that each group's pattern matches a parameter, frozen ones included.
// Errors: InvalidArgument names the patterns that match none (the first five, and
//   counts the others) and up to three names that are near to each; or those of
//   Validate().
absl::Status CheckGroupsMatch(const OptimizerConfig& config, const Manifest& manifest);

// The longest ranges of one group in the shard of `rank`; padding goes with the
// parameter before it. `plan` is that of `manifest`.
// Errors: those of CheckGroupsMatch().
absl::StatusOr<std::vector<GroupRange>> GroupRangesOf(const OptimizerConfig& config,
                                                      const Manifest& manifest,
                                                      const ShardPlan& plan, int rank);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_PARAMETER_GROUPS_H_
