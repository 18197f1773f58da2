#include "worker/transport/begun_reduction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace lockstep {

void BegunReduction::Begin(std::vector<Part> parts, std::int64_t slice_bytes) {
  parts_ = std::move(parts);
  slices_.clear();
  weights_.clear();
  for (std::size_t i = parts_.size(); i-- > 0;) {
    const std::int64_t length = slice_bytes / ElementBytes(parts_[i].gradients.dtype);
    for (int owner = static_cast<int>(parts_[i].shards.size()); owner-- > 0;) {
      const Shard& shard = parts_[i].shards[owner];
      for (std::int64_t end = shard.end; end > shard.begin; end -= length) {
        slices_.push_back({i, owner, {std::max(shard.begin, end - length), end}});
      }
    }
  }
}

absl::Status BegunReduction::MakeRoomForSums(const AllocateSums& allocate) {
  for (Part& part : parts_) {
    if (part.gradients.dtype == DType::kFloat32) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(part.short_sums, allocate(part.shards[rank_].elements()));
  }
  return absl::OkStatus();
}

void BegunReduction::Drop() {
  for (Part& part : parts_) part.over = true;
}

bool BegunReduction::has_parts() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return !part.over; });
}

std::optional<std::size_t> BegunReduction::PartOf(const Arena& gradients) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].gradients.data == gradients.data) return i;
  }
  return std::nullopt;
}

float* BegunReduction::RoomForSums(const Slice& slice) const {
  const Part& part = parts_[slice.part];
  if (part.gradients.dtype == DType::kFloat32) {
    return part.gradients.floats().data() + slice.elements.begin;
  }
  return part.short_sums.get() + (slice.elements.begin - part.shards[rank_].begin);
}

absl::Status BegunReduction::CheckAllReady(std::span<const ReadyRanges> ready) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (ready[i].Covers(0, parts_[i].gradients.elements)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "a reduction was begun, and not all gradients of arena ", parts_[i].arena,
        " are ready; say so of all of them before the next collective call"));
  }
  return absl::OkStatus();
}

const BegunReduction::Part* BegunReduction::Find(int arena) const {
  const auto found = std::ranges::find_if(
      parts_, [&](const Part& part) { return part.arena == arena && !part.over; });
  return found == parts_.end() ? nullptr : &*found;
}

absl::Status BegunReduction::CheckEnd(int arena, std::span<const Shard> shards,
                                      std::span<const float> weights) const {
  const Part* const part = Find(arena);
  if (part == nullptr || (std::ranges::equal(part->shards, shards) &&
                          std::ranges::equal(weights_, weights))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the reduction of arena ", arena,
      " was begun with other shards or weights; begin it with those that it ends with"));
}

std::span<const float> BegunReduction::UseUp(int arena) {
  const auto part = std::ranges::find(parts_, arena, &Part::arena);
  LOCKSTEP_CHECK(part != parts_.end() && !part->over);
  part->over = true;
  const Shard& mine = part->shards[rank_];
  const auto elements = static_cast<std::size_t>(mine.elements());
  if (part->gradients.dtype != DType::kFloat32) return {part->short_sums.get(), elements};
  return part->gradients.floats().subspan(mine.begin, elements);
}

}  // namespace lockstep
