// Joining: from attending to a started epoch, with a transport and arenas.
//
//   AwaitProposal --> form transport --> allocate --> Ready --> Start
//        ^                  |                |          |
//        +---- the epoch is over, or did not form in time
//
// It knows no tensors of the model beyond its manifest. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_JOINING_H_
#define LOCKSTEP_WORKER_ENGINE_JOINING_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/protocol/messages.h"
#include "worker/agent/coordinator_link.h"
#include "worker/core/step_protocol.h"
#include "worker/device/device_math.h"
#include "worker/engine/block_arenas.h"
#include "worker/engine/engine.h"
#include "worker/optim/shard_optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

// One rank's part in one epoch.
struct Membership {
  Proposal proposal;
  int rank = 0;
  StepProtocol protocol;
  std::shared_ptr<DeviceMath> math;
  std::unique_ptr<ShardOptimizer> optimizer;  // of `math`
  std::unique_ptr<Transport> transport;
  std::vector<BlockArenas> blocks;  // of `transport`, by the plan's
};

// Joins the first epoch that starts with this worker. Afterwards the link's
// OnAbort() reaches the transport: remove it before the membership goes.
// Errors: as Engine::Join().
absl::StatusOr<std::unique_ptr<Membership>> JoinEpoch(const EngineOptions& options,
                                                      const OptimizerConfig& optimizer,
                                                      const Manifest& manifest,
                                                      TransportFactory* transports,
                                                      CoordinatorLink* link);

// An epoch of one worker without a coordinator.
absl::StatusOr<std::unique_ptr<Membership>> FormAlone(const OptimizerConfig& optimizer,
                                                      const SyncPolicy& policy,
                                                      const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_JOINING_H_
