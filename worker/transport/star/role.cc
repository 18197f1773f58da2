#include "worker/transport/star/role.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/transport/call.h"
#include "worker/transport/star/forming.h"

namespace lockstep::star {
namespace {

absl::Status LeftError(const Group& group, int rank) {
  return absl::UnavailableError(
      absl::StrCat(MemberText(group.members, rank), " has left the epoch"));
}

absl::Status UnexpectedError(const Group& group, int rank, FrameKind kind) {
  return GoneError(group, rank,
                   absl::StrCat("it sent a frame of kind ", static_cast<int>(kind),
                                " when none was due"));
}

class RootRole final : public Role {
 public:
  RootRole(const Group& group, std::span<Peer> peers)
      : group_(group), peers_(peers), records_(group.members.size()) {}

  void Begin(absl::string_view mine) override {
    ++number_;
    records_[0].emplace(mine);
  }

  absl::Status OnFrame(Peer& peer, const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::kRecord:
        if (records_[peer.rank].has_value()) break;
        records_[peer.rank] = frame.payload;
        return absl::OkStatus();
      case FrameKind::kGoodbye:
        peer.left = true;
        for (Peer& other : peers_) {
          if (!other.left) other.connection.Send(FrameKind::kLeft, Encode(peer.rank));
        }
        return absl::OkStatus();
      case FrameKind::kOverdue: {
        const absl::StatusOr<std::int64_t> number = DecodeNumber(frame.payload);
        if (!number.ok()) return GoneError(group_, peer.rank, number.status().message());
        overdue_ = {.rank = peer.rank, .number = *number};
        return absl::OkStatus();
      }
      default:
        break;
    }
    return UnexpectedError(group_, peer.rank, frame.kind);
  }

  absl::Status Advance() override {
    const std::vector<int> missing = Missing();
    if (missing.empty()) LOCKSTEP_RETURN_IF_ERROR(SendRecords());
    if (overdue_.has_value()) {
      // Of an exchange that is over nobody is missing.
      return LateError(group_, overdue_->number > done_ ? missing : std::vector<int>(),
                       overdue_->rank);
    }
    if (!records_[0].has_value()) return absl::OkStatus();
    for (const Peer& peer : peers_) {
      if (peer.left && !records_[peer.rank].has_value()) return LeftError(group_, peer.rank);
    }
    return absl::OkStatus();
  }

  absl::Status OnDeadline() override {
    if (!has_result()) return LateError(group_, Missing(), 0);
    std::vector<std::string> names;
    for (const Peer& peer : peers_) {
      if (peer.connection.sending()) names.push_back(MemberText(group_.members, peer.rank));
    }
    return absl::DeadlineExceededError(
        absl::StrCat(ListNames(names), " did not read the others' records in time"));
  }

 private:
  struct Overdue {
    int rank = 0;
    std::int64_t number = 0;
  };

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int rank = 0; rank < static_cast<int>(records_.size()); ++rank) {
      if (!records_[rank].has_value()) missing.push_back(rank);
    }
    return missing;
  }

  absl::Status SendRecords() {
    std::string all;
    std::vector<std::string> sizes;
    bool equal = true;
    for (const std::optional<std::string>& record : records_) {
      equal = equal && record->size() == records_[0]->size();
      all.append(*record);
    }
    if (!equal) {
      for (int rank = 0; rank < static_cast<int>(records_.size()); ++rank) {
        sizes.push_back(absl::StrCat(records_[rank]->size(), " bytes on ",
                                     MemberText(group_.members, rank)));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "ranks exchanged records of different sizes: ", ListNames(sizes),
          "; all ranks must call the same operations in the same order"));
    }
    for (Peer& peer : peers_) peer.connection.Send(FrameKind::kRecords, all);
    result_.emplace();
    for (std::optional<std::string>& record : records_) {
      result_->push_back(*std::move(record));
      record.reset();
    }
    done_ = number_;
    return absl::OkStatus();
  }

  const Group& group_;
  const std::span<Peer> peers_;
  // Of the exchange in progress, or of the next one from ranks that came early.
  std::vector<std::optional<std::string>> records_;
  std::int64_t number_ = 0;  // of the exchange that this rank came to last; the first has 1
  std::int64_t done_ = 0;    // all came to
  std::optional<Overdue> overdue_;
};

class LeafRole final : public Role {
 public:
  LeafRole(const Group& group, Peer& root) : group_(group), root_(root) {}

  void Begin(absl::string_view mine) override {
    ++number_;
    waiting_ = true;
    record_bytes_ = mine.size();
    root_.connection.Send(FrameKind::kRecord, mine);
  }

  absl::Status OnFrame(Peer& root, const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::kRecords: {
        const std::size_t n = group_.members.size();
        if (!waiting_ || frame.payload.size() != n * record_bytes_) break;
        waiting_ = false;
        result_.emplace();
        for (std::size_t rank = 0; rank < n; ++rank) {
          result_->push_back(frame.payload.substr(rank * record_bytes_, record_bytes_));
        }
        return absl::OkStatus();
      }
      case FrameKind::kGoodbye:
        root.left = true;
        left_ = 0;
        return absl::OkStatus();
      case FrameKind::kLeft: {
        const absl::StatusOr<std::int64_t> rank = DecodeNumber(frame.payload);
        if (!rank.ok() || *rank < 0 ||
            *rank >= static_cast<std::int64_t>(group_.members.size())) {
          break;
        }
        left_ = static_cast<int>(*rank);
        return absl::OkStatus();
      }
      default:
        break;
    }
    return UnexpectedError(group_, 0, frame.kind);
  }

  absl::Status Advance() override {
    return waiting_ && left_.has_value() ? LeftError(group_, *left_) : absl::OkStatus();
  }

  absl::Status OnDeadline() override {
    if (asked_) return LateError(group_, {0}, group_.rank);
    asked_ = true;
    root_.connection.SendLast(FrameKind::kOverdue, Encode(number_));
    return absl::OkStatus();
  }

 private:
  const Group& group_;
  Peer& root_;
  std::int64_t number_ = 0;
  bool waiting_ = false;  // for the records of exchange `number_`
  std::size_t record_bytes_ = 0;
  bool asked_ = false;
  std::optional<int> left_;  // the last rank that has
};

}  // namespace

std::vector<std::string> Role::TakeResult() {
  std::vector<std::string> result = *std::move(result_);
  result_.reset();
  return result;
}

std::unique_ptr<Role> MakeRootRole(const Group& group, std::span<Peer> peers) {
  return std::make_unique<RootRole>(group, peers);
}

std::unique_ptr<Role> MakeLeafRole(const Group& group, Peer& root) {
  return std::make_unique<LeafRole>(group, root);
}

}  // namespace lockstep::star
