// Which ranks of an epoch keep a copy of which shard, and what that costs.
//
// Each rank keeps its own shard. With two replicas the next rank, the buddy, keeps it as well.
// Where copies come from is not decided here. Pure; thread-compatible.
#ifndef LOCKSTEP_COMMON_SHARDING_REPLICAS_H_
#define LOCKSTEP_COMMON_SHARDING_REPLICAS_H_

#include <cstdint>
#include <vector>

#include "common/sharding/shard_plan.h"

namespace lockstep {

// The rank that keeps another copy of the shard of `owner`; -1: nobody does.
int BuddyOf(int owner, int world_size, int optimizer_replicas);

// The ranks whose shards a rank keeps: itself first, then the one of which it is the buddy, if any.
std::vector<int> OwnersKeptBy(int rank, int world_size, int optimizer_replicas);

// Their ranges of the flat space, by the rank that keeps them.
std::vector<std::vector<Shard>> CopiesOf(const ShardPlan& plan, int optimizer_replicas);

// A copy of the shard of rank `owner` that rank `to` is given.
struct HandOver {
  int owner = 0;
  int to = 0;

  bool operator==(const HandOver&) const = default;
};

// What a rank that is drained hands over to others, who do not keep it, so that each shard is
// kept by as many as before. Each rank gets at most one. Nothing where all others keep it.
std::vector<HandOver> HandOversOf(int drained, const ShardPlan& plan, int optimizer_replicas);

// What a rank holds of the optimizer: of each copy `element_bytes` an element, which is the
// optimizer's, and masters of short types; and the parameters of the copy that it keeps as a buddy.
// This and BytesSentInStep() stop at the largest number.
std::int64_t StateBytes(const ShardPlan& plan, int rank, int optimizer_replicas,
                        std::int64_t element_bytes);

// The `element_bytes` with which StateBytes() is `state_bytes`, 0 if that is less than what is no
// element's; the rank's copies are not empty. `state_bytes` >= 0.
std::int64_t ElementBytesOf(const ShardPlan& plan, int rank, int optimizer_replicas,
                            std::int64_t state_bytes);

// What a rank sends in a step over a network: gradients to their owners, updated parameters of its
// own to all, and with two replicas its sums to the buddy.
std::int64_t BytesSentInStep(const ShardPlan& plan, int rank, int optimizer_replicas);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_SHARDING_REPLICAS_H_
