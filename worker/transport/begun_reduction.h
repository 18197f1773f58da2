// BegunReduction: a reduction that was begun before gradients are ready: its arenas, the
// slices in which they go to their owners, and where the sums come to lie. How slices
// travel is the transport's affair.
//
// Each shard is cut into slices, counted from the end of the last arena, as backward makes
// the last layer's gradients first. Sums go to the owner's own part of its own arena, or
// beside it if the arena's type is shorter than float.
//
// Thread-compatible; follows no pointer into an arena.
#ifndef LOCKSTEP_WORKER_TRANSPORT_BEGUN_REDUCTION_H_
#define LOCKSTEP_WORKER_TRANSPORT_BEGUN_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sharding/shard_plan.h"
#include "worker/transport/ready_ranges.h"
#include "worker/transport/transport.h"

namespace lockstep {

class BegunReduction {
 public:
  // One arena of it.
  struct Part {
    int arena = 0;  // its number
    Arena gradients;
    std::vector<Shard> shards;  // by rank
    // Of this rank's shard, where the arena has no room for sums.
    std::shared_ptr<float[]> short_sums = nullptr;
    bool over = false;  // used up or dropped
  };
  // What goes to an owner at once, in elements of a part's arena; not empty.
  struct Slice {
    std::size_t part = 0;
    int owner = 0;
    Shard elements;
  };

  explicit BegunReduction(int rank) : rank_(rank) {}

  // Slices are of `slice_bytes`, or shorter.
  void Begin(std::vector<Part> parts, std::int64_t slice_bytes);
  // Before sums are made: allocates short_sums. Errors: those of `allocate`.
  using AllocateSums =
      std::function<absl::StatusOr<std::shared_ptr<float[]>>(std::int64_t elements)>;
  absl::Status MakeRoomForSums(const AllocateSums& allocate);
  // What is left of it is forgotten.
  void Drop();
  bool has_parts() const;

  std::span<const Part> parts() const { return parts_; }
  // The number of the part that the arena is; nothing if it is none.
  std::optional<std::size_t> PartOf(const Arena& gradients) const;
  // From the end.
  std::span<const Slice> slices() const { return slices_; }
  const Arena& ArenaOf(const Slice& slice) const { return parts_[slice.part].gradients; }
  // Where the sums of a slice that this rank owns belong.
  float* RoomForSums(const Slice& slice) const;

  // `ready`: by part. Errors: FailedPrecondition: not all elements are ready.
  absl::Status CheckAllReady(std::span<const ReadyRanges> ready) const;

  // By rank, once they are known.
  std::span<const float> weights() const { return weights_; }
  void SetWeights(std::vector<float> weights) { weights_ = std::move(weights); }

  // Whether sums of that arena are there: they were begun, and neither used up nor dropped.
  bool Has(int arena) const { return Find(arena) != nullptr; }
  // Errors: InvalidArgument: they are there, with other shards or weights.
  absl::Status CheckEnd(int arena, std::span<const Shard> shards,
                        std::span<const float> weights) const;
  // Those of this rank's shard, which are there, until the next Begin() or until somebody
  // writes there.
  std::span<const float> UseUp(int arena);

 private:
  const Part* Find(int arena) const;

  const int rank_;
  std::vector<Part> parts_;
  std::vector<Slice> slices_;
  std::vector<float> weights_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_BEGUN_REDUCTION_H_
