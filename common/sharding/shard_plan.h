// ShardPlan: which rank owns which range of the flat parameter space.
//
// The flat space is all trainable parameters one behind the other, in manifest
// order, each rounded up to kAlignElements so that every tensor starts on a
// cache line. A shard is one contiguous range of it and may cut through tensors:
// element-wise optimizers do not care, and the balance is perfect (to one cache
// line). Computed alike by coordinator and workers and compared by digest.
//
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_
#define LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"

namespace lockstep {

// 64 bytes of float32.
inline constexpr std::int64_t kAlignElements = 16;

struct Placement {  // one trainable parameter in the flat space
  std::string name;
  std::int64_t offset = 0;    // elements
  std::int64_t elements = 0;  // without padding

  bool operator==(const Placement&) const = default;
};

struct Shard {  // [begin, end) in elements, owned by the rank of its index
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t elements() const { return end - begin; }
  bool operator==(const Shard&) const = default;
};

struct ShardPlan {
  std::int64_t flat_elements = 0;      // padding included; multiple of kAlignElements
  std::vector<Placement> placements;   // in manifest order
  std::vector<Shard> shards;           // by rank; consecutive, cover the flat space

  std::uint64_t Digest() const;
  bool operator==(const ShardPlan&) const = default;
};

// `world_size` >= 1 equal shards, each aligned to kAlignElements.
// Errors: InvalidArgument: world_size < 1, or a trainable parameter that is not
//   float32 (named, with what to do).
absl::StatusOr<ShardPlan> PlanShards(const Manifest& manifest, int world_size);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_
