#include "worker/transport/nccl/early_reduction.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"

namespace lockstep::nccl_link {

void EarlyReduction::Begin(std::vector<BegunReduction::Part> parts) {
  MutexLock lock(&mu_);
  begun_.Begin(std::move(parts), slice_bytes_);
  said_.assign(begun_.parts().size(), {});
  unmarked_ = absl::OkStatus();
  Recycle(announced_);
}

void EarlyReduction::Recycle(std::deque<Announced>& announced) {
  for (Announced& each : announced) spare_.push_back(std::move(each.event));
  announced.clear();
}

absl::Status EarlyReduction::CheckAllReady() const {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(unmarked_);
  return begun_.CheckAllReady(said_);
}

absl::Status EarlyReduction::MarkReady(const Arena& gradients, std::int64_t begin,
                                       std::int64_t end) {
  std::optional<std::size_t> part;
  {
    MutexLock lock(&mu_);
    part = begun_.PartOf(gradients);
    if (!part.has_value()) return absl::OkStatus();
    said_[*part].Add(begin, end);
  }
  // Not under the mutex: a call that does not come back would hold up the other threads.
  absl::StatusOr<Event> event = RecordCaller();
  MutexLock lock(&mu_);
  unmarked_.Update(event.status());
  if (event.ok()) announced_.push_back({*part, begin, end, *std::move(event)});
  return event.status();
}

absl::StatusOr<Event> EarlyReduction::RecordCaller() {
  Event event;
  {
    MutexLock lock(&mu_);
    if (!spare_.empty()) {
      event = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(device_.MakeCurrent());
  if (!event.exists()) {
    LOCKSTEP_ASSIGN_OR_RETURN(event, Event::Create(&device_.api()));
  }
  LOCKSTEP_RETURN_IF_ERROR(device_.RecordCaller(event));
  return event;
}

absl::Status EarlyReduction::Run(std::vector<float> weights, const Smallest& smallest) {
  LOCKSTEP_RETURN_IF_ERROR(device_.MakeCurrent());
  begun_.SetWeights(std::move(weights));
  LOCKSTEP_RETURN_IF_ERROR(begun_.MakeRoomForSums(
      [this](std::int64_t elements) { return math_.Allocate(elements); }));
  LOCKSTEP_RETURN_IF_ERROR(versions_.Begin(slice_bytes_, 0).status());
  {
    // Of elements that belong to no owner nobody awaited the events.
    MutexLock lock(&mu_);
    Recycle(coming_);
  }
  reached_.assign(begun_.parts().size(), {});
  made_ = 0;
  round_ = 0;
  const std::span<const BegunReduction::Slice> slices = begun_.slices();
  for (std::int64_t sent = 0; sent < std::ssize(slices);) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t mine, AwaitSlices(sent));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t due, smallest(mine));
    LOCKSTEP_RETURN_IF_ERROR(Move(slices.subspan(sent, due - sent)));
    sent = due;
  }
  return communicator_.AwaitAll(kReduction);
}

absl::StatusOr<std::int64_t> EarlyReduction::AwaitSlices(std::int64_t sent) {
  const std::span<const BegunReduction::Slice> slices = begun_.slices();
  LOCKSTEP_RETURN_IF_ERROR(
      communicator_.AwaitThat("making of gradients", [&]() -> absl::StatusOr<bool> {
        LOCKSTEP_RETURN_IF_ERROR(TakeInWhatIsReached());
        while (made_ < std::ssize(slices)) {
          const BegunReduction::Slice& next = slices[made_];
          if (!reached_[next.part].Covers(next.elements.begin, next.elements.end)) break;
          ++made_;
        }
        return made_ > sent;
      }));
  return made_;
}

absl::Status EarlyReduction::TakeInWhatIsReached() {
  {
    MutexLock lock(&mu_);
    std::ranges::move(announced_, std::back_inserter(coming_));
    announced_.clear();
  }
  while (!coming_.empty()) {
    Announced& next = coming_.front();
    LOCKSTEP_ASSIGN_OR_RETURN(const bool reached, next.event.Reached());
    if (!reached) break;
    reached_[next.part].Add(next.begin, next.end);
    {
      MutexLock lock(&mu_);
      spare_.push_back(std::move(next.event));
    }
    coming_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status EarlyReduction::Move(std::span<const BegunReduction::Slice> slices) {
  std::vector<std::vector<VersionExchange::Part>> rounds;
  std::vector<std::size_t> rounds_of(world_size_);  // by owner
  std::vector<float*> sums;                         // by round
  for (const BegunReduction::Slice& slice : slices) {
    const std::size_t round = rounds_of[slice.owner]++;
    if (round == rounds.size()) {
      rounds.emplace_back(world_size_);
      sums.push_back(nullptr);
    }
    rounds[round][slice.owner] = {begun_.ArenaOf(slice), slice.elements};
    if (slice.owner == rank_) sums[round] = begun_.RoomForSums(slice);
  }
  for (std::size_t i = 0; i < rounds.size(); ++i, ++round_) {
    LOCKSTEP_RETURN_IF_ERROR(versions_.AwaitTurn(round_));
    LOCKSTEP_RETURN_IF_ERROR(versions_.Send(round_, rounds[i], begun_.weights()));
    LOCKSTEP_RETURN_IF_ERROR(
        versions_.AddUp(round_, rounds[i][rank_], begun_.weights(), sums[i]));
    LOCKSTEP_RETURN_IF_ERROR(versions_.Free(round_));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::nccl_link
