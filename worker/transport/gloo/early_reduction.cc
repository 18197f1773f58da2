#include "worker/transport/gloo/early_reduction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/combine/combine.h"

namespace lockstep::gloo_links {
namespace {

constexpr std::int32_t kTag = Links::kMaxTag - 2;

}  // namespace

void EarlyReduction::Begin(Links* links, std::vector<Part> parts) {
  MutexLock lock(&mu_);
  links_ = links;
  parts_ = std::move(parts);
  ready_.assign(parts_.size(), {});
  next_.assign(world_size_, 0);
  slices_.assign(world_size_, {});
  for (int owner = 0; owner < world_size_; ++owner) {
    for (std::size_t i = parts_.size(); i-- > 0;) {
      const Shard& shard = parts_[i].shards[owner];
      const std::int64_t length = slice_bytes_ / ElementBytes(parts_[i].gradients.dtype);
      for (std::int64_t end = shard.end; end > shard.begin; end -= length) {
        slices_[owner].push_back({i, {std::max(shard.begin, end - length), end}});
      }
    }
  }
  for (Part& part : parts_) {
    if (part.gradients.dtype == DType::kFloat32) continue;
    part.short_sums.resize(part.shards[rank_].elements());
  }
}

void EarlyReduction::Drop() {
  for (Part& part : parts_) part.over = true;
}

bool EarlyReduction::has_parts() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return !part.over; });
}

const EarlyReduction::Part* EarlyReduction::Find(int arena) const {
  const auto found = std::ranges::find_if(
      parts_, [&](const Part& part) { return part.arena == arena && !part.over; });
  return found == parts_.end() ? nullptr : &*found;
}

std::span<const float> EarlyReduction::UseUp(int arena) {
  const auto part = std::ranges::find(parts_, arena, &Part::arena);
  LOCKSTEP_CHECK(part != parts_.end() && !part->over);
  part->over = true;
  if (part->gradients.dtype != DType::kFloat32) return part->short_sums;
  const Shard& mine = part->shards[rank_];
  return part->gradients.floats().subspan(mine.begin, mine.elements());
}

absl::Status EarlyReduction::CheckAllReady() const {
  MutexLock lock(&mu_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (ready_[i].Covers(0, parts_[i].gradients.elements)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "a reduction was begun, and not all gradients of arena ", parts_[i].arena,
        " are ready; say so of all of them before the next collective call"));
  }
  return absl::OkStatus();
}

void EarlyReduction::MarkReady(const Arena& gradients, std::int64_t begin, std::int64_t end) {
  MutexLock lock(&mu_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].gradients.data == gradients.data) ready_[i].Add(begin, end);
  }
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
  weights_ = std::move(weights);
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
      const Arena& gradients = parts_[slice.part].gradients;
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
              slice.elements.elements() * ElementBytes(parts_[slice.part].gradients.dtype)));
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
  Part& part = parts_[slice.part];
  const Shard& mine = part.shards[rank_];
  std::vector<const std::byte*> versions;
  for (int r = 0; r < world_size_; ++r) {
    versions.push_back(r == rank_ ? part.gradients.at(slice.elements.begin)
                                  : inbox_.Version(added_, r));
  }
  float* const into = part.gradients.dtype == DType::kFloat32
                          ? part.gradients.floats().data() + slice.elements.begin
                          : part.short_sums.data() + (slice.elements.begin - mine.begin);
  WeightedSum(part.gradients.dtype, versions, weights_, slice.elements.elements(),
              [&](std::int64_t begin, std::span<const float> sums) {
                std::ranges::copy(sums, into + begin);
              });
  ++added_;
}

}  // namespace lockstep::gloo_links
