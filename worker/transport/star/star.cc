#include "worker/transport/star/star.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "worker/transport/call.h"
#include "worker/transport/checked_transport.h"
#include "worker/transport/interface_address.h"
#include "worker/transport/star/forming.h"
#include "worker/transport/star/role.h"
#include "worker/transport/star/socket.h"

namespace lockstep {
namespace {

using star::Connection;
using star::Fd;
using star::Frame;
using star::FrameKind;
using star::Peer;
using star::Role;

// How long last words may take to go to a peer that does not read.
constexpr absl::Duration kLingerTime = absl::Seconds(1);

// Who reads: the thread in Exchange(), else the watcher. The watcher sleeps through
// records, as every frame that must be seen at once is followed by the end of the stream,
// and that is all it waits for.
class TcpStar final : public Star {
 public:
  TcpStar(Group group, std::vector<Connection> connections, Fd bell, OnLoss on_loss)
      : group_(std::move(group)), on_loss_(std::move(on_loss)), bell_(std::move(bell)) {
    for (Connection& connection : connections) {
      const int rank = group_.rank == 0 ? static_cast<int>(peers_.size()) + 1 : 0;
      peers_.push_back({.rank = rank, .connection = std::move(connection)});
    }
    role_ = group_.rank == 0 ? star::MakeRootRole(group_, peers_)
                             : star::MakeLeafRole(group_, peers_[0]);
    watcher_ = std::thread([this] { Watch(); });
  }

  ~TcpStar() override {
    {
      MutexLock lock(&mu_);
      closing_ = true;
      for (Peer& peer : peers_) peer.connection.SendLast(FrameKind::kGoodbye, "");
      RingBell();
    }
    watcher_.join();
    MutexLock lock(&mu_);
    for (Peer& peer : peers_) peer.connection.Drain();
  }

  absl::StatusOr<std::vector<std::string>> Exchange(std::span<const std::byte> mine,
                                                    MonoTime deadline) override {
    MutexLock lock(&mu_);
    if (!over_.ok()) return over_;
    if (mine.size() > kMaxRecordBytes) {
      End(absl::InvalidArgumentError(
          absl::StrCat(MemberText(group_.members, group_.rank), " gave a record of ", mine.size(),
                       " bytes, at most ", kMaxRecordBytes, " can be exchanged")));
      return over_;
    }
    exchanging_ = true;
    role_->Begin({reinterpret_cast<const char*>(mine.data()), mine.size()});
    absl::StatusOr<std::vector<std::string>> result = AwaitResult(deadline);
    exchanging_ = false;
    StopBell();
    exchange_ended_.SignalAll();
    return result;
  }

  void Hasten(MonoTime latest) override {
    MutexLock lock(&mu_);
    latest_ = latest;
    if (exchanging_) RingBell();
  }

  void Abort(const absl::Status& why) override {
    MutexLock lock(&mu_);
    if (!over_.ok()) return;
    aborted_here_ = true;
    End(why.ok() ? absl::AbortedError("aborted without a reason") : why);
  }

 private:
  absl::StatusOr<std::vector<std::string>> AwaitResult(MonoTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // Of rank 0's answer, once it was asked who is missing.
    std::optional<MonoTime> answer;
    while (true) {
      TakeIn();
      // What took place counts, also if the epoch ended right after.
      if (role_->has_result() && !Sending()) return role_->TakeResult();
      if (!over_.ok()) return over_;
      MonoTime until = answer.value_or(std::min(deadline, latest_));
      if (clock_.Now() >= until) {
        if (absl::Status late = role_->OnDeadline(); !late.ok()) {
          End(std::move(late));
          return over_;
        }
        answer = until = clock_.Now() + star::kAnswerTime;
      }
      Sleep(exchange_fds_, POLLIN, until);
      StopBell();
    }
  }

  void Watch() {
    MutexLock lock(&mu_);
    std::vector<pollfd> fds;
    while (true) {
      exchange_ended_.AwaitFor(&mu_, absl::InfiniteDuration(), [&] { return !exchanging_; });
      TakeIn();
      if (closing_ || !over_.ok()) break;
      Sleep(fds, POLLRDHUP, MonoTime::Infinite());
    }
    if (!closing_ && !aborted_here_ && on_loss_ != nullptr) {
      const absl::Status why = over_;
      mu_.Unlock();
      on_loss_(why);
      mu_.Lock();
    }
    const MonoTime until = clock_.Now() + kLingerTime;
    while (Sending() && clock_.Now() < until) {
      fds.clear();
      for (Peer& peer : peers_) {
        if (peer.connection.sending()) {
          fds.push_back({.fd = peer.connection.fd(), .events = POLLOUT, .revents = 0});
        }
      }
      mu_.Unlock();
      star::Poll(fds, until);
      mu_.Lock();
      for (Peer& peer : peers_) peer.connection.Flush();
    }
  }

  // Until a peer can be read (or as `events` says) or written to, the bell, or the deadline.
  void Sleep(std::vector<pollfd>& fds, short events, MonoTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    fds.clear();
    fds.push_back({.fd = bell_.get(), .events = POLLIN, .revents = 0});
    for (const Peer& peer : peers_) {
      // Its end would wake for ever.
      if (peer.connection.ended()) continue;
      const int out = peer.connection.sending() ? POLLOUT : 0;
      fds.push_back({.fd = peer.connection.fd(),
                     .events = static_cast<short>(events | out),
                     .revents = 0});
    }
    // The sockets stay open until the destructor has joined the watcher.
    mu_.Unlock();
    star::Poll(fds, deadline);
    mu_.Lock();
  }

  // Reads all that has come.
  void TakeIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Peer& peer : peers_) {
      while (over_.ok() && Hear(peer)) {
      }
      peer.connection.Flush();
    }
    if (!over_.ok()) return;
    if (absl::Status s = role_->Advance(); !s.ok()) return End(std::move(s));
    for (const Peer& peer : peers_) {
      if (peer.connection.ended() && !peer.left) {
        return End(star::GoneError(group_, peer.rank, peer.connection.end_text()));
      }
    }
  }

  // Whether there was a frame.
  bool Hear(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::StatusOr<std::optional<Frame>> frame = peer.connection.Receive();
    absl::Status status = frame.status();
    if (!frame.ok()) {
      status = star::GoneError(group_, peer.rank, frame.status().message());
    } else if (!frame->has_value()) {
      return false;
    } else if ((*frame)->kind == FrameKind::kEnd) {
      status = star::DecodeError((*frame)->payload);
    } else {
      status = role_->OnFrame(peer, **frame);
    }
    if (!status.ok()) End(std::move(status));
    return true;
  }

  bool Sending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const Peer& peer : peers_) {
      if (peer.connection.sending() && !peer.connection.ended()) return true;
    }
    return false;
  }

  void End(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    over_ = std::move(why);
    for (Peer& peer : peers_) peer.connection.SendLast(FrameKind::kEnd, star::Encode(over_));
    RingBell();
  }

  // Once the epoch is over it stays rung: whoever sleeps or wants to looks for the reason.
  void StopBell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (closing_ || !over_.ok()) return;
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t size = read(bell_.get(), &rings, sizeof(rings));
  }

  void RingBell() {
    const std::uint64_t one = 1;
    // Cannot fail: the counter holds 2^64 - 2 rings.
    [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
  }

  const Group group_;
  const RealClock clock_;
  const OnLoss on_loss_;
  const Fd bell_;

  Mutex mu_;
  CondVar exchange_ended_;
  bool exchanging_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool aborted_here_ ABSL_GUARDED_BY(mu_) = false;
  MonoTime latest_ ABSL_GUARDED_BY(mu_) = MonoTime::Infinite();
  absl::Status over_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Role> role_ ABSL_GUARDED_BY(mu_);
  std::vector<pollfd> exchange_fds_ ABSL_GUARDED_BY(mu_);
  std::thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StarListener>> StarListener::Listen(const std::string& interface) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, InterfaceAddress(interface));
  std::string endpoint;
  LOCKSTEP_ASSIGN_OR_RETURN(Fd socket, star::ListenOn(address, &endpoint));
  std::random_device random;
  const std::uint64_t nonce = std::uint64_t{random()} << 32 | random();
  return std::make_unique<star::Listener>(std::move(socket), std::move(endpoint), nonce);
}

absl::StatusOr<std::unique_ptr<Star>> Star::Form(const Group& group,
                                                 std::unique_ptr<StarListener> listener,
                                                 const std::string& address, OnLoss on_loss,
                                                 const FormingStop* stop) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(group));
  if ((group.rank == 0) != (listener != nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank 0 and no other rank gives a listener; this is rank ", group.rank));
  }
  const FormingStop never;
  if (stop == nullptr) stop = &never;
  std::vector<Connection> connections;
  if (group.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        connections, GatherRanks(group, static_cast<const star::Listener&>(*listener), *stop));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(Connection connection, star::JoinRankZero(group, address, *stop));
    connections.push_back(std::move(connection));
  }
  Fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no file descriptor is left: eventfd: ", std::strerror(errno)));
  }
  return std::make_unique<TcpStar>(group, std::move(connections), std::move(bell),
                                   std::move(on_loss));
}

}  // namespace lockstep
