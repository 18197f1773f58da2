// Parameters outside of the step: made equal, or found to be.
#ifndef LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_
#define LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_

#include <span>

#include "absl/status/status.h"
#include "common/sharding/shard_plan.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

// `parameters`: of each block of the plan.

// Collective. Makes the arenas and the frozen parameters those of `root`.
// Errors: as Model::FrozenParameters() and Transport::Exchange().
absl::Status BroadcastParametersFrom(int root, std::span<const Arena> parameters, Model* model,
                                     Transport* transport);

// Collective. Compares the parameters among ranks, bit by bit but for chance; in an
// arena that all ranks share there is nothing to compare.
// Errors: FailedPrecondition: they differ; names the first such parameter and the
//   ranks that differ from rank 0. As Model::FrozenParameters() and
//   Transport::Exchange().
absl::Status CheckParametersEqual(const ShardPlan& plan, std::span<const Arena> parameters,
                                  Model* model, Transport* transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_
