// One block of the plan as this rank holds it. A pure value; owns nothing.
#ifndef LOCKSTEP_WORKER_ENGINE_BLOCK_ARENAS_H_
#define LOCKSTEP_WORKER_ENGINE_BLOCK_ARENAS_H_

#include <vector>

#include "common/sharding/shard_plan.h"
#include "worker/transport/transport.h"

namespace lockstep {

struct BlockArenas {
  Arena parameters;
  Arena gradients;
  std::vector<Shard> shards;  // by rank, within the block
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_BLOCK_ARENAS_H_
