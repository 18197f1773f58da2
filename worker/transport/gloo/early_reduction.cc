#include "worker/transport/gloo/early_reduction.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/combine/combine.h"

namespace lockstep::gloo_links {
namespace {

constexpr std::int32_t kTag = Links::kMaxTag - 2;

}  // namespace

void EarlyReduction::Begin(Links* links, std::vector<BegunReduction::Part> parts) {
  MutexLock lock(&mu_);
  links_ = links;
  begun_.Begin(std::move(parts), slice_bytes_);
  ready_.assign(begun_.parts().size(), {});
  next_.assign(world_size_, 0);
  slices_.assign(world_size_, {});
  for (const Slice& slice : begun_.slices()) slices_[slice.owner].push_back(slice);
}

absl::Status EarlyReduction::CheckAllReady() const {
  MutexLock lock(&mu_);
  return begun_.CheckAllReady(ready_);
}

void EarlyReduction::MarkReady(const Arena& gradients, std::int64_t begin, std::int64_t end) {
  MutexLock lock(&mu_);
  const std::optional<std::size_t> part = begun_.PartOf(gradients);
  if (!part.has_value()) return;
  ready_[*part].Add(begin, end);
  if (CanSend()) links_->Poke();
  changed_.SignalAll();
}

void EarlyReduction::Stop(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (stopped_.ok()) stopped_ = absl::AbortedError(why.message());
  changed_.SignalAll();
}

bool EarlyReduction::IsReady(const Slice& slice) const {
  return ready_[slice.part].Covers(slice.elements.begin, slice.elements.end);
}

bool EarlyReduction::CanSend() const {
  for (int owner = 0; owner < static_cast<int>(next_.size()); ++owner) {
    if (owner == rank_ || next_[owner] == slices_[owner].size()) continue;
    if (IsReady(slices_[owner][next_[owner]])) return true;
  }
  return false;
}

bool EarlyReduction::CanAddUp() const {
  return added_ < slices_[rank_].size() && IsReady(slices_[rank_][added_]);
}

absl::Status EarlyReduction::Run(std::vector<float> weights) {
  begun_.SetWeights(std::move(weights));
  LOCKSTEP_RETURN_IF_ERROR(begun_.MakeRoomForSums(
      [](std::int64_t elements) { return std::make_shared<float[]>(elements); }));
  posted_ = 0;
  added_ = 0;
  arriving_.assign(slices_[rank_].size(), {});
  sent_.clear();
  inbox_.MakeRoom(slice_bytes_);
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(SendWhatIsReady());
    LOCKSTEP_RETURN_IF_ERROR(PostReceives());
    LOCKSTEP_ASSIGN_OR_RETURN(const bool complete, AwaitVersions());
    if (!complete) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, AwaitReadiness());
    if (!more) break;
    AddUpIfReady();
  }
  for (const Links::Ticket ticket : sent_) {
    LOCKSTEP_RETURN_IF_ERROR(links_->Await(ticket, MonoTime::Infinite()));
  }
  return absl::OkStatus();
}

absl::Status EarlyReduction::SendWhatIsReady() {
  // From the next rank on, so that not all send to one.
  for (int i = 1; i < world_size_; ++i) {
    const int owner = (rank_ + i) % world_size_;
    std::size_t begin, end;
    {
      MutexLock lock(&mu_);
      if (!stopped_.ok()) return stopped_;
      begin = next_[owner];
      for (end = begin; end < slices_[owner].size() && IsReady(slices_[owner][end]);) ++end;
      next_[owner] = end;
    }
    for (const Slice& slice : std::span(slices_[owner]).subspan(begin, end - begin)) {
      const Arena& gradients = begun_.ArenaOf(slice);
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_->Send(owner, kTag, gradients.at(slice.elements.begin),
                       slice.elements.elements() * ElementBytes(gradients.dtype)));
      sent_.push_back(ticket);
    }
  }
  return absl::OkStatus();
}

absl::Status EarlyReduction::PostReceives() {
  const std::size_t end = std::min(slices_[rank_].size(), added_ + kPartsAhead);
  for (; posted_ < end; ++posted_) {
    const Slice& slice = slices_[rank_][posted_];
    for (int i = 1; i < world_size_; ++i) {
      const int from = (rank_ + world_size_ - i) % world_size_;
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_->Receive(
              from, kTag, inbox_.Version(posted_, from),
              slice.elements.elements() * ElementBytes(begun_.ArenaOf(slice).dtype)));
      arriving_[posted_].push_back(ticket);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> EarlyReduction::AwaitVersions() {
  if (added_ == slices_[rank_].size()) return true;
  std::vector<Links::Ticket>& tickets = arriving_[added_];
  for (; !tickets.empty(); tickets.pop_back()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool arrived, links_->AwaitUnlessPoked(tickets.back()));
    if (!arrived) return false;
  }
  return true;
}

absl::StatusOr<bool> EarlyReduction::AwaitReadiness() {
  MutexLock lock(&mu_);
  bool done = added_ == slices_[rank_].size();
  for (int owner = 0; owner < world_size_; ++owner) {
    done = done && (owner == rank_ || next_[owner] == slices_[owner].size());
  }
  if (done) return false;
  changed_.AwaitFor(&mu_, absl::InfiniteDuration(),
                    [&] { return !stopped_.ok() || CanSend() || CanAddUp(); });
  if (!stopped_.ok()) return stopped_;
  return true;
}

void EarlyReduction::AddUpIfReady() {
  {
    MutexLock lock(&mu_);
    if (!CanAddUp()) return;
  }
  const Slice& slice = slices_[rank_][added_];
  const Arena& gradients = begun_.ArenaOf(slice);
  std::vector<const std::byte*> versions;
  for (int r = 0; r < world_size_; ++r) {
    versions.push_back(r == rank_ ? gradients.at(slice.elements.begin)
                                  : inbox_.Version(added_, r));
  }
  float* const into = begun_.RoomForSums(slice);
  WeightedSum(gradients.dtype, versions, begun_.weights(), slice.elements.elements(),
              [&](std::int64_t begin, std::span<const float> sums) {
                std::ranges::copy(sums, into + begin);
              });
  ++added_;
}

}  // namespace lockstep::gloo_links
