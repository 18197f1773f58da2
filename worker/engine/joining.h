// Joining: from attending to a started epoch, with a transport and arenas.
//
//   AwaitProposal --> form transport --> allocate --> Ready --> Start
//        ^                  |                |          |
//        +---- the epoch is over, or did not form in time
//
// It knows no tensors of the model beyond its manifest. Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_JOINING_H_
#define LOCKSTEP_WORKER_ENGINE_JOINING_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "common/manifest/manifest.h"
#include "common/policy/sync_policy.h"
#include "worker/agent/coordinator_link.h"
#include "worker/engine/engine_options.h"
#include "worker/engine/membership.h"
#include "worker/optim/optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Whether the coordinator can go on without whoever caused it.
bool NextProposalMayHelp(const absl::Status& status);

// Joins the first epoch that starts with this worker, which holds a state behind `step`, until
// `deadline`. Afterwards the link's OnAbort() reaches the transport: remove it
// before the membership goes. Errors: as Engine::Join().
absl::StatusOr<std::unique_ptr<Membership>> JoinEpoch(
    const EngineOptions& options, const OptimizerConfig& optimizer, const Manifest& manifest,
    TransportFactory* transports, CoordinatorLink* link, std::int64_t step, MonoTime deadline);

// An empty copy of `owner`'s shard, as `membership`, which has its arenas, could keep it beside its
// own. Errors: ResourceExhausted: there is no memory.
absl::StatusOr<ShardCopy> MakeCopy(int owner, const Membership& membership);

// An epoch of one worker without a coordinator.
absl::StatusOr<std::unique_ptr<Membership>> FormAlone(const OptimizerConfig& optimizer,
                                                      const SyncPolicy& policy,
                                                      const Manifest& manifest);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_JOINING_H_
