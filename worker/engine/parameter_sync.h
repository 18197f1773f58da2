// Parameters outside of the step: made equal, or found to be.
#ifndef LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_
#define LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_

#include <span>

#include "absl/status/status.h"
#include "common/sharding/shard_plan.h"
#include "worker/device/device_math.h"
#include "worker/engine/block_arenas.h"
#include "worker/engine/model.h"
#include "worker/transport/transport.h"

namespace lockstep {

// `blocks`: by the plan's.

// Collective. Makes the arenas and the frozen parameters those of `root`.
// Errors: as Model::FrozenParameters() and Transport::Exchange().
absl::Status BroadcastParametersFrom(int root, std::span<const BlockArenas> blocks,
                                     Model* model, Transport* transport);

// Collective. Compares the parameters among ranks, bit by bit but for chance; in an
// arena that all ranks share there is nothing to compare. `math`: of the arenas' memory.
// Errors: FailedPrecondition: they differ; names the first such parameter and the
//   ranks that differ from rank 0. As Model::FrozenParameters(),
//   Transport::Exchange() and DeviceMath::ToHost().
absl::Status CheckParametersEqual(const ShardPlan& plan, std::span<const BlockArenas> blocks,
                                  Model* model, DeviceMath* math, Transport* transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_PARAMETER_SYNC_H_
