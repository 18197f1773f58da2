#include "common/sharding/replicas.h"

#include <algorithm>
#include <limits>

#include "common/manifest/dtype.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFloatBytes = 4;

// A model that anybody may announce, and what workers say that they hold, have more bytes in all
// copies than fit.
__extension__ using Wide = __int128;

std::int64_t Saturated(Wide bytes) {
  return static_cast<std::int64_t>(
      std::min<Wide>(bytes, std::numeric_limits<std::int64_t>::max()));
}

// What of it lies in the block.
std::int64_t ElementsIn(const Shard& shard, const Block& block) {
  return std::max<std::int64_t>(
      0, std::min(shard.end, block.end) - std::max(shard.begin, block.begin));
}

}  // namespace

int BuddyOf(int owner, int world_size, int optimizer_replicas) {
  if (optimizer_replicas < 2 || world_size < 2) return -1;
  return (owner + 1) % world_size;
}

std::vector<int> OwnersKeptBy(int rank, int world_size, int optimizer_replicas) {
  std::vector<int> owners = {rank};
  const int before = (rank + world_size - 1) % world_size;
  if (BuddyOf(before, world_size, optimizer_replicas) == rank) owners.push_back(before);
  return owners;
}

std::vector<std::vector<Shard>> CopiesOf(const ShardPlan& plan, int optimizer_replicas) {
  const int world_size = static_cast<int>(plan.shards.size());
  std::vector<std::vector<Shard>> copies(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    for (const int owner : OwnersKeptBy(rank, world_size, optimizer_replicas)) {
      copies[rank].push_back(plan.shards[owner]);
    }
  }
  return copies;
}

std::vector<HandOver> HandOversOf(int drained, const ShardPlan& plan, int optimizer_replicas) {
  const int world_size = static_cast<int>(plan.shards.size());
  const auto keeps = [&](int r, int owner) {
    return r == owner || r == BuddyOf(owner, world_size, optimizer_replicas);
  };
  std::vector<HandOver> all;
  for (int owner = 0; owner < world_size; ++owner) {
    if (!keeps(drained, owner) || plan.shards[owner].elements() == 0) continue;
    for (int next = 1; next < world_size; ++next) {
      const int to = (drained + next) % world_size;
      if (keeps(to, owner)) continue;
      all.push_back({owner, to});
      break;
    }
  }
  return all;
}

std::int64_t StateBytes(const ShardPlan& plan, int rank, int optimizer_replicas,
                        std::int64_t element_bytes) {
  const int world_size = static_cast<int>(plan.shards.size());
  Wide bytes = 0;
  for (const int owner : OwnersKeptBy(rank, world_size, optimizer_replicas)) {
    const Shard& copy = plan.shards[owner];
    bytes += Wide{copy.elements()} * element_bytes;
    for (const Block& block : plan.blocks) {
      const Wide elements = ElementsIn(copy, block);
      if (block.dtype != DType::kFloat32) bytes += elements * kFloatBytes;
      if (owner != rank) bytes += elements * ElementBytes(block.dtype);
    }
  }
  return Saturated(bytes);
}

std::int64_t ElementBytesOf(const ShardPlan& plan, int rank, int optimizer_replicas,
                            std::int64_t state_bytes) {
  const int world_size = static_cast<int>(plan.shards.size());
  std::int64_t elements = 0;
  for (const int owner : OwnersKeptBy(rank, world_size, optimizer_replicas)) {
    elements += plan.shards[owner].elements();
  }
  const std::int64_t others = StateBytes(plan, rank, optimizer_replicas, 0);
  return std::max<std::int64_t>(0, state_bytes - others) / elements;
}

std::int64_t BytesSentInStep(const ShardPlan& plan, int rank, int optimizer_replicas) {
  const int world_size = static_cast<int>(plan.shards.size());
  const bool has_buddy = BuddyOf(rank, world_size, optimizer_replicas) >= 0;
  Wide bytes = 0;
  for (const Block& block : plan.blocks) {
    const Wide own = ElementsIn(plan.shards[rank], block);
    const Wide gradients = block.elements() - own;
    bytes += (gradients + own * (world_size - 1)) * ElementBytes(block.dtype);
    if (has_buddy) bytes += own * kFloatBytes;
  }
  return Saturated(bytes);
}

}  // namespace lockstep
