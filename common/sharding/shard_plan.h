// ShardPlan: which rank owns which range of the flat parameter space.
//
// The flat space is all trainable parameters one behind the other, each rounded up
// to kAlignElements so that every tensor starts on a cache line: block by block, one
// for each element type, and in manifest order within one.
// A shard is one contiguous range of it and may cut through tensors and blocks:
// element-wise optimizers do not care, and the balance is perfect (to one cache
// line). Computed alike by coordinator and workers and compared by digest.
//
// Pure values; thread-compatible.
#ifndef LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_
#define LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"

namespace lockstep {

// Bound on the members of an epoch.
inline constexpr int kMaxWorldSize = 10'000;

// 64 bytes of float32, 32 of the short types.
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

// Types that IsTrainable().
inline constexpr int kMaxBlocks = 3;

struct Block {  // [begin, end) in elements, all of one type
  DType dtype = DType::kFloat32;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t elements() const { return end - begin; }
  bool operator==(const Block&) const = default;
};

struct ShardPlan {
  std::int64_t flat_elements = 0;      // padding included; multiple of kAlignElements
  std::vector<Block> blocks;           // float32 first; consecutive, cover the flat space
  std::vector<Placement> placements;   // in the order of their offsets
  std::vector<Shard> shards;           // by rank; consecutive, cover the flat space

  std::uint64_t Digest() const;
  bool operator==(const ShardPlan&) const = default;
};

// `world_size` shards, each aligned to kAlignElements, no two of which differ by
// more than that; lower ranks own the longer ones. `manifest` passed Validate.
// Errors: InvalidArgument: world_size not in [1, kMaxWorldSize], or a trainable
//   parameter whose type is not IsTrainable() (named, with what to do).
absl::StatusOr<ShardPlan> PlanShards(const Manifest& manifest, int world_size);

// Checks that shards and blocks cover the flat space without gap or overlap, that all
// is aligned, and that the placements lie in it one behind the other, each in one
// block. Errors:
//   InvalidArgument says which rank's shard, which block or which parameter is wrong.
absl::Status Validate(const ShardPlan& plan);

// The index of the block in which element `offset` of the flat space lies; the number of
// blocks if that is in none.
std::size_t BlockAt(const ShardPlan& plan, std::int64_t offset);

// By rank: its shard's part of the block, counted from the block's begin.
std::vector<Shard> ShardsWithin(const ShardPlan& plan, const Block& block);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_SHARDING_SHARD_PLAN_H_
