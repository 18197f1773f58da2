// Membership: one rank's part in one epoch: what was agreed, memory, and state.
//
// It outlives the epoch where the rank takes its state along (recovering.h). Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_MEMBERSHIP_H_
#define LOCKSTEP_WORKER_ENGINE_MEMBERSHIP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/manifest/manifest.h"
#include "common/protocol/messages.h"
#include "worker/core/step_commit.h"
#include "worker/core/step_protocol.h"
#include "worker/device/device_math.h"
#include "worker/engine/block_arenas.h"
#include "worker/engine/shard_copy.h"
#include "worker/optim/optimizer.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct Membership {
  Proposal proposal;
  int rank = 0;
  StepProtocol protocol;
  Manifest manifest;
  OptimizerConfig optimizer;
  std::shared_ptr<DeviceMath> math;
  std::unique_ptr<Transport> transport;
  std::vector<BlockArenas> blocks;  // of `transport`, by the plan's
  std::vector<ShardCopy> copies;    // this rank's own shard; then, if it is a buddy, another's
  StepCommit commit;
  float prepared_factor = 1;        // of the sums of a step that is prepared

  ShardCopy& own() { return copies.front(); }
  const ShardCopy& own() const { return copies.front(); }
  int world_size() const { return static_cast<int>(proposal.members.size()); }
  // Of the optimizer: of all copies, with the parameters that a buddy keeps.
  std::int64_t state_bytes() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_MEMBERSHIP_H_
