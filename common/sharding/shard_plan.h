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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"

namespace lockstep {

// Bound on the members of an epoch.
inline constexpr int kMaxWorldSize = 4096;

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

// `world_size` shards, each aligned to kAlignElements, no two of which differ by
// more than that; lower ranks own the longer ones. `manifest` passed Validate.
// Errors: InvalidArgument: world_size not in [1, kMaxWorldSize], or a trainable
//   parameter that is not float32 (named, with what to do).
absl::StatusOr<ShardPlan> PlanShards(const Manifest& manifest, int world_size);

// Checks that the shards cover the flat space without gap or overlap, that all is
// aligned, and that the placements lie in it one behind the other. Errors:
//   InvalidArgument says which rank's shard or which parameter is wrong.
absl::Status Validate(const ShardPlan& plan);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_
