#include "worker/transport/star/forming.h"

#include <algorithm>
#include <optional>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/mono_time.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/transport/call.h"

namespace lockstep::star {
namespace {

// Beside those that the group awaits; beyond it the oldest makes way.
constexpr std::size_t kMaxStrangers = 64;

Hello HelloOf(const Group& group, std::uint64_t nonce) {
  Digester members;
  for (const std::string& name : group.members) members.Add(name);
  return {.nonce = nonce,
          .members = members.Finish(),
          .epoch = group.epoch.value(),
          .rank = group.rank};
}

// Rank 0's side.
class Gathering {
 public:
  Gathering(const Group& group, const Listener& listener, const FormingStop& stop)
      : group_(group),
        listener_(listener),
        stop_(stop),
        mine_(HelloOf(group, listener.nonce())) {
    ranks_.resize(group.members.size());
  }

  absl::StatusOr<std::vector<Connection>> Run() {
    absl::Status status = AwaitAll();
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) AwaitLatecomers();
    std::vector<Connection> connections;
    for (std::optional<Connection>& rank : ranks_) {
      if (!rank.has_value()) continue;
      if (status.ok()) {
        rank->Send(FrameKind::kWelcome, "");
      } else {
        Dismiss(*rank, status);
      }
      connections.push_back(*std::move(rank));
    }
    if (!status.ok()) return status;
    return connections;
  }

 private:
  absl::Status AwaitAll() {
    const MonoTime deadline = clock_.Now() + group_.deadline;
    while (true) {
      LOCKSTEP_RETURN_IF_ERROR(stop_.why());
      TakeIn();
      LOCKSTEP_RETURN_IF_ERROR(HearStrangers());
      const std::vector<int> missing = Missing();
      LOCKSTEP_RETURN_IF_ERROR(HearRanks(missing));
      if (missing.empty()) return absl::OkStatus();
      if (clock_.Now() >= deadline) return Late(missing, /*impatient=*/0);
      Sleep(ranks_, stop_.fd(), deadline);
    }
  }

  // So that they are told the reason, and not that nobody listens.
  void AwaitLatecomers() {
    const MonoTime until = clock_.Now() + kAnswerTime;
    while (!Missing().empty() && clock_.Now() < until) {
      Sleep(/*ranks=*/{}, /*stop=*/-1, until);
      TakeIn();
      // Who differs is told so as well.
      HearStrangers().IgnoreError();
    }
  }

  // Until somebody connects, or a stranger or one of `ranks` says something or is gone.
  void Sleep(std::span<const std::optional<Connection>> ranks, int stop, MonoTime deadline) {
    std::vector<pollfd> fds = {{.fd = listener_.socket().get(), .events = POLLIN, .revents = 0},
                               {.fd = stop, .events = POLLIN, .revents = 0}};
    for (const Connection& stranger : strangers_) {
      fds.push_back({.fd = stranger.fd(), .events = POLLIN, .revents = 0});
    }
    for (const std::optional<Connection>& rank : ranks) {
      if (rank.has_value()) fds.push_back({.fd = rank->fd(), .events = POLLIN, .revents = 0});
    }
    Poll(fds, deadline);
  }

  // Bounded: who connects without end must not keep rank 0 from its other work.
  void TakeIn() {
    for (std::size_t i = 0; i < kMaxStrangers; ++i) {
      Fd socket = Accept(listener_.socket());
      if (!socket.valid()) return;
      if (strangers_.size() >= kMaxStrangers + ranks_.size()) strangers_.erase(strangers_.begin());
      strangers_.emplace_back(std::move(socket), Encode(Hello{}).size());
    }
  }

  absl::Status HearStrangers() {
    for (std::size_t i = 0; i < strangers_.size();) {
      Connection& stranger = strangers_[i];
      absl::StatusOr<std::optional<Frame>> frame = stranger.Receive();
      if (frame.ok() && !frame->has_value() && !stranger.ended()) {
        ++i;
        continue;
      }
      if (!frame.ok()) {
        Refuse(stranger, frame.status().message());
      } else if (frame->has_value()) {
        LOCKSTEP_RETURN_IF_ERROR(Meet(stranger, **frame));
      }
      strangers_.erase(strangers_.begin() + i);
    }
    return absl::OkStatus();
  }

  // Seats a rank, or refuses a stranger. Errors: who has the nonce is meant to be here, so
  // if it is of another epoch or group the right one will not come.
  absl::Status Meet(Connection& stranger, const Frame& frame) {
    const absl::StatusOr<Hello> hello = DecodeHello(frame.payload);
    if (frame.kind != FrameKind::kHello || !hello.ok() || hello->nonce != mine_.nonce) {
      Refuse(stranger, "it wants to join another meeting; was its address given by an older "
                       "rank 0?");
      return absl::OkStatus();
    }
    const std::string here = MemberText(group_.members, 0);
    std::string difference;
    if (hello->epoch != mine_.epoch) {
      difference = absl::StrCat("rank ", hello->rank, " is of epoch ", hello->epoch, ", ", here,
                                " of epoch ", mine_.epoch);
    } else if (hello->members != mine_.members) {
      difference = absl::StrCat("rank ", hello->rank, " has another list of members than ", here,
                                ", which has ", ListNames(group_.members));
    } else if (hello->rank < 1 || hello->rank >= static_cast<std::int64_t>(ranks_.size())) {
      difference = absl::StrCat("one that calls itself rank ", hello->rank, " joined ", here,
                                ", in a group of ", ranks_.size(), " ranks");
    }
    if (!difference.empty()) {
      absl::Status error = absl::FailedPreconditionError(
          absl::StrCat(difference, "; all ranks must form the same epoch of the same members"));
      Dismiss(stranger, error);
      return error;
    }
    std::optional<Connection>& seat = ranks_[hello->rank];
    if (seat.has_value()) {
      Refuse(stranger, absl::StrCat(MemberText(group_.members, static_cast<int>(hello->rank)),
                                    " is already here"));
      return absl::OkStatus();
    }
    stranger.set_max_payload(std::max(kMaxRecordBytes, kMaxControlBytes));
    seat.emplace(std::move(stranger));
    return absl::OkStatus();
  }

  absl::Status HearRanks(const std::vector<int>& missing) {
    for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (!ranks_[rank].has_value()) continue;
      absl::StatusOr<std::optional<Frame>> frame = ranks_[rank]->Receive();
      if (!frame.ok()) return GoneError(group_, rank, frame.status().message());
      if (frame->has_value()) {
        if ((*frame)->kind == FrameKind::kOverdue) return Late(missing, rank);
        if ((*frame)->kind == FrameKind::kEnd) return DecodeError((*frame)->payload);
        return GoneError(group_, rank, "it spoke before all had come");
      }
      if (ranks_[rank]->ended()) return GoneError(group_, rank, ranks_[rank]->end_text());
    }
    return absl::OkStatus();
  }

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (!ranks_[rank].has_value()) missing.push_back(rank);
    }
    return missing;
  }

  absl::Status Late(const std::vector<int>& missing, int impatient) const {
    absl::Status late = LateError(group_, missing, impatient);
    if (refused_.empty()) return late;
    return absl::Status(late.code(), absl::StrCat(late.message(), " (somebody was refused: ",
                                                  refused_, ")"));
  }

  void Refuse(Connection& stranger, absl::string_view why) {
    refused_ = std::string(why);
    Dismiss(stranger, absl::FailedPreconditionError(absl::StrCat(
                          MemberText(group_.members, 0), " refused the connection: ", why)));
  }

  static void Dismiss(Connection& connection, const absl::Status& why) {
    connection.SendLast(FrameKind::kEnd, Encode(why));
    connection.Drain();
  }

  const RealClock clock_;
  const Group& group_;
  const Listener& listener_;
  const FormingStop& stop_;
  const Hello mine_;
  std::vector<std::optional<Connection>> ranks_;  // the first stays empty
  std::vector<Connection> strangers_;             // have not said who they are
  std::string refused_;                           // why the last one was
};

}  // namespace

std::string Listener::address() const {
  return absl::StrCat(endpoint_, " ", absl::Hex(nonce_, absl::kZeroPad16));
}

absl::Status LateError(const Group& group, const std::vector<int>& missing, int impatient) {
  if (missing.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "all ranks came, but too late for ", MemberText(group.members, impatient)));
  }
  std::vector<std::string> names;
  for (const int rank : missing) names.push_back(MemberText(group.members, rank));
  return absl::DeadlineExceededError(absl::StrCat(ListNames(names), " did not come in time"));
}

absl::Status GoneError(const Group& group, int rank, absl::string_view how) {
  return absl::UnavailableError(absl::StrCat(MemberText(group.members, rank), " is gone: ", how));
}

absl::StatusOr<std::vector<Connection>> GatherRanks(const Group& group, const Listener& listener,
                                                    const FormingStop& stop) {
  return Gathering(group, listener, stop).Run();
}

absl::StatusOr<Connection> JoinRankZero(const Group& group, const std::string& address,
                                        const FormingStop& stop) {
  const RealClock clock;
  MonoTime deadline = clock.Now() + group.deadline;
  const std::string root = MemberText(group.members, 0);
  const std::vector<std::string> fields = absl::StrSplit(address, ' ');
  std::uint64_t nonce = 0;
  if (fields.size() != 2 || !absl::SimpleHexAtoi(fields[1], &nonce)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "what ", root, " gave is no address: ", Quoted(address),
        "; do all ranks use the same transport?"));
  }
  absl::StatusOr<Fd> socket = Connect(fields[0], stop.fd(), deadline);
  if (!socket.ok()) {
    LOCKSTEP_RETURN_IF_ERROR(stop.why());
    return absl::Status(socket.status().code(), absl::StrCat(root, " was not reached: ",
                                                             socket.status().message()));
  }
  Connection connection(*std::move(socket),
                        std::max(group.members.size() * kMaxRecordBytes, kMaxControlBytes));
  connection.Send(FrameKind::kHello, Encode(HelloOf(group, nonce)));
  bool asked = false;
  while (true) {
    absl::StatusOr<std::optional<Frame>> frame = connection.Receive();
    if (frame.ok() && frame->has_value()) {
      if ((*frame)->kind == FrameKind::kWelcome) return connection;
      if ((*frame)->kind == FrameKind::kEnd) return DecodeError((*frame)->payload);
      frame = absl::InvalidArgumentError("a frame that is no answer");
    }
    if (!frame.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "what listens at ", fields[0], " is not ", root, ": ", frame.status().message()));
    }
    if (const absl::Status why = stop.why(); !why.ok()) {
      connection.SendLast(FrameKind::kEnd, Encode(why));
      return why;
    }
    if (connection.ended()) return GoneError(group, 0, connection.end_text());
    if (clock.Now() >= deadline) {
      if (asked) return LateError(group, {0}, group.rank);
      asked = true;
      connection.SendLast(FrameKind::kOverdue, Encode(std::int64_t{0}));
      deadline = deadline + kAnswerTime;
    }
    pollfd fds[] = {{.fd = connection.fd(), .events = POLLIN, .revents = 0},
                    {.fd = stop.fd(), .events = POLLIN, .revents = 0}};
    Poll(fds, deadline);
  }
}

}  // namespace lockstep::star
