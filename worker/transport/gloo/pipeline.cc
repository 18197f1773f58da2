#include "worker/transport/gloo/pipeline.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace lockstep::gloo_links {
namespace {

// Tags of rounds that are under way differ, and those of the two halves.
std::int32_t VersionTag(std::int64_t round) { return 2 * (round % kRoundsUnderWay); }
std::int32_t PartTag(std::int64_t round) { return VersionTag(round) + 1; }

}  // namespace

absl::Status Pipeline::Run(const Rounds& rounds, MonoTime deadline) {
  under_way_.assign(kRoundsUnderWay, {});
  if (rounds.combines) inbox_.MakeRoom(rounds.version_bytes);
  // Ahead of what is combined by kRoundsAhead, ahead of what is ended by kRoundsUnderWay.
  for (std::int64_t step = 0; step < rounds.count + kRoundsUnderWay; ++step) {
    const std::int64_t combined = step - kRoundsAhead;
    const std::int64_t ended = step - kRoundsUnderWay;
    if (combined >= 0 && combined < rounds.count) {
      LOCKSTEP_RETURN_IF_ERROR(Combine(rounds, combined, deadline));
    }
    if (ended >= 0) LOCKSTEP_RETURN_IF_ERROR(End(rounds, ended, deadline));
    if (step < rounds.count) LOCKSTEP_RETURN_IF_ERROR(Begin(rounds, step));
  }
  return absl::OkStatus();
}

absl::Status Pipeline::Begin(const Rounds& rounds, std::int64_t round) {
  if (rounds.begin) rounds.begin(round);
  Round& under_way = under_way_[round % kRoundsUnderWay];
  const Piece mine = rounds.piece(round, rank_);
  // Receives first: a peer may send as soon as it knows of them. From the next rank
  // on, so that not all send to one.
  for (int i = 1; i < world_size_; ++i) {
    const int from = (rank_ + world_size_ - i) % world_size_;
    if (rounds.combines && mine.version_bytes > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_.Receive(from, VersionTag(round), inbox_.Version(round, from),
                         mine.version_bytes));
      under_way.versions.push_back(ticket);
    }
    const Piece theirs = rounds.piece(round, from);
    if (rounds.spreads && theirs.part_bytes > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Links::Ticket ticket,
          links_.Receive(from, PartTag(round), theirs.part, theirs.part_bytes));
      under_way.others.push_back(ticket);
    }
  }
  for (int i = 1; rounds.combines && i < world_size_; ++i) {
    const int to = (rank_ + i) % world_size_;
    const Piece theirs = rounds.piece(round, to);
    if (theirs.version_bytes == 0) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Links::Ticket ticket,
        links_.Send(to, VersionTag(round), theirs.version, theirs.version_bytes));
    under_way.others.push_back(ticket);
  }
  return absl::OkStatus();
}

absl::Status Pipeline::Combine(const Rounds& rounds, std::int64_t round, MonoTime deadline) {
  const Piece mine = rounds.piece(round, rank_);
  Round& under_way = under_way_[round % kRoundsUnderWay];
  for (const Links::Ticket ticket : under_way.versions) {
    LOCKSTEP_RETURN_IF_ERROR(links_.Await(ticket, deadline));
  }
  under_way.versions.clear();
  if (rounds.combine && (mine.version_bytes > 0 || mine.part_bytes > 0)) {
    std::vector<const std::byte*> versions;
    for (int r = 0; rounds.combines && r < world_size_; ++r) {
      versions.push_back(r == rank_ ? mine.version : inbox_.Version(round, r));
    }
    rounds.combine(round, versions);
  }
  for (int i = 1; rounds.spreads && mine.part_bytes > 0 && i < world_size_; ++i) {
    const int to = (rank_ + i) % world_size_;
    LOCKSTEP_ASSIGN_OR_RETURN(const Links::Ticket ticket,
                              links_.Send(to, PartTag(round), mine.part, mine.part_bytes));
    under_way.others.push_back(ticket);
  }
  return absl::OkStatus();
}

absl::Status Pipeline::End(const Rounds& rounds, std::int64_t round, MonoTime deadline) {
  Round& under_way = under_way_[round % kRoundsUnderWay];
  for (const Links::Ticket ticket : under_way.others) {
    LOCKSTEP_RETURN_IF_ERROR(links_.Await(ticket, deadline));
  }
  under_way.others.clear();
  if (rounds.end) rounds.end(round);
  return absl::OkStatus();
}

}  // namespace lockstep::gloo_links
