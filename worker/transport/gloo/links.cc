#include "worker/transport/gloo/links.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/transport/gloo/rendezvous.h"
#include "worker/transport/gloo/torch_guard.h"

namespace lockstep::gloo_links {
namespace {

// How late the watch may notice what a wait is not told of.
constexpr absl::Duration kWatchPeriod = absl::Milliseconds(20);
// Gloo's own deadline would close the links before this rank could say why.
constexpr absl::Duration kGlooGrace = absl::Seconds(1);
constexpr std::chrono::milliseconds kAtOnce(1);

std::vector<at::Tensor> TensorOf(std::byte* data, std::int64_t bytes) {
  return {at::from_blob(data, {bytes}, at::kByte)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Links>> Links::Form(c10::intrusive_ptr<c10d::Store> store,
                                                   const Group& group,
                                                   const std::string& interface) {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  const absl::Status formed = GuardTorch("connecting all ranks by Gloo", [&] {
    auto options = c10d::ProcessGroupGloo::Options::create(ToMillis(group.deadline));
    options->threads = 1;  // of collectives, which are not used
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
    gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store), group.rank,
        static_cast<int>(group.members.size()), options);
  });
  if (!formed.ok()) return RollCall(store, group, formed).Result();
  auto links = std::unique_ptr<Links>(new Links(std::move(store), group, std::move(gloo)));
  for (int peer = 0; peer < static_cast<int>(group.members.size()); ++peer) {
    if (peer == group.rank) {
      MutexLock lock(&links->mu_);
      links->sentinels_.emplace_back();
      continue;
    }
    std::vector<at::Tensor> never = TensorOf(&links->never_, 1);
    const absl::Status posted = GuardTorch("watching for peers", [&] {
      MutexLock lock(&links->mu_);
      links->sentinels_.push_back(links->gloo_->recv(never, peer, kMaxTag));
    });
    if (!posted.ok()) return links->Explain(posted);
  }
  links->watch_ = std::thread([watched = links.get()] { watched->Watch(); });
  return links;
}

Links::Links(c10::intrusive_ptr<c10d::Store> store, const Group& group,
             c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
    : store_(std::move(store)), group_(group), gloo_(std::move(gloo)) {}

Links::~Links() {
  {
    MutexLock lock(&mu_);
    over_ = true;
    changed_.SignalAll();
  }
  if (watch_.joinable()) watch_.join();
  if (!under_way_.empty()) Close();
}

absl::StatusOr<Links::Ticket> Links::Send(int peer, std::int32_t tag, const std::byte* data,
                                          std::int64_t bytes) {
  return Begin("sending", peer, {.sent_bytes = bytes}, [&] {
    std::vector<at::Tensor> tensor = TensorOf(const_cast<std::byte*>(data), bytes);
    return gloo_->send(tensor, peer, tag);
  });
}

absl::StatusOr<Links::Ticket> Links::Receive(int peer, std::int32_t tag, std::byte* data,
                                             std::int64_t bytes) {
  return Begin("receiving", peer, {.received_bytes = bytes}, [&] {
    std::vector<at::Tensor> tensor = TensorOf(data, bytes);
    return gloo_->recv(tensor, peer, tag);
  });
}

template <typename Start>  // Start: () -> Work
absl::StatusOr<Links::Ticket> Links::Begin(absl::string_view what, int peer,
                                           TrafficCounters traffic, Start start) {
  Work work;
  const absl::Status started = GuardTorch(what, [&] { work = start(); });
  if (!started.ok()) return Explain(started);
  under_way_.emplace(next_, Message{peer, std::move(work), traffic});
  return next_++;
}

absl::Status Links::Await(Ticket ticket, MonoTime deadline) {
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool done, Wait(ticket, deadline, /*heeds_pokes=*/false));
    if (done) return absl::OkStatus();
  }
}

absl::StatusOr<bool> Links::AwaitUnlessPoked(Ticket ticket) {
  return Wait(ticket, MonoTime::Infinite(), /*heeds_pokes=*/true);
}

absl::StatusOr<bool> Links::Wait(Ticket ticket, MonoTime deadline, bool heeds_pokes) {
  const auto found = under_way_.find(ticket);
  LOCKSTEP_CHECK(found != under_way_.end());
  const Work work = found->second.work;
  {
    MutexLock lock(&mu_);
    if (heeds_pokes && std::exchange(poked_, false)) return false;
    if (!interruption_.ok()) work->abort();
    deadline = standing_deadline_.value_or(deadline);
    awaited_ = work;
    awaited_peer_ = found->second.peer;
    deadline_ = deadline;
    heeds_pokes_ = heeds_pokes;
    broken_off_ = absl::OkStatus();
  }
  bool done = false;
  absl::Status status = GuardTorch("waiting for a message", [&] {
    done = work->wait(ToMillis(deadline - clock_.Now() + kGlooGrace));
  });
  {
    MutexLock lock(&mu_);
    awaited_.reset();
    if (status.ok() && !done) {
      status = broken_off_;
      if (status.ok() && interruption_.ok()) {
        if (heeds_pokes) poked_ = false;
        return false;
      }
    }
    if (status.ok() && done) {
      traffic_.sent_bytes += found->second.traffic.sent_bytes;
      traffic_.received_bytes += found->second.traffic.received_bytes;
    }
  }
  if (!status.ok() || !done) return Explain(status);
  under_way_.erase(found);
  return true;
}

void Links::Poke() {
  MutexLock lock(&mu_);
  poked_ = true;
  if (awaited_ && heeds_pokes_) awaited_->abort();
}

void Links::GoAway() {
  MutexLock lock(&mu_);
  away_ = true;
  standing_deadline_ = MonoTime::Infinite();
}

void Links::ComeBack(MonoTime deadline) {
  MutexLock lock(&mu_);
  away_ = false;
  standing_deadline_ = deadline;
  deadline_ = deadline;
  changed_.SignalAll();
}

void Links::TakeBack() {
  MutexLock lock(&mu_);
  standing_deadline_.reset();
}

TrafficCounters Links::traffic() const {
  MutexLock lock(&mu_);
  return traffic_;
}

// Gloo does not tell a wait that its connection is gone if its message is half-way,
// and cannot end one early without closing the connections of all.
void Links::Watch() {
  MutexLock lock(&mu_);
  Work previous;  // so that short waits cost nothing
  while (!changed_.AwaitFor(&mu_, kWatchPeriod, [&] { return over_; })) {
    if (awaited_ && awaited_ == previous && broken_off_.ok()) {
      if (clock_.Now() > deadline_) {
        broken_off_ = absl::DeadlineExceededError("a message timed out");
      } else if (IsGone(awaited_peer_)) {
        broken_off_ = absl::UnavailableError("a connection was closed by its peer");
      }
      if (!broken_off_.ok()) awaited_->abort();
    }
    previous = awaited_;
  }
}

bool Links::IsGone(int peer) {
  const Work& sentinel = sentinels_[peer];
  sentinel->abort();  // of the wait that follows: it tells only whether the peer is gone
  return !GuardTorch("", [&] { sentinel->wait(kAtOnce); }).ok();
}

void Links::Interrupt(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (!interruption_.ok() || closed_) return;
    interruption_ = why;
    changed_.SignalAll();
    if (awaited_) awaited_->abort();
  }
  RollCall(store_, group_, absl::AbortedError(why.message()));
  Close();
}

absl::Status Links::Explain(const absl::Status& fault) {
  absl::Status interruption;
  bool closed;
  {
    MutexLock lock(&mu_);
    changed_.AwaitFor(&mu_, absl::InfiniteDuration(),
                      [&] { return !away_ || !interruption_.ok(); });
    // Peers should find the reason when they find the links closed.
    if (!interruption_.ok()) changed_.AwaitFor(&mu_, kGlooGrace, [&] { return closed_; });
    interruption = interruption_;
    closed = closed_;
  }
  if (interruption.ok() && !closed) {
    RollCall roll(store_, group_, fault);
    Close();
    under_way_.clear();
    return roll.Result();
  }
  Close();
  under_way_.clear();
  return interruption.ok() ? fault : interruption;
}

void Links::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  changed_.SignalAll();
  for (const Work& sentinel : sentinels_) {
    if (!sentinel) continue;
    // A wait that times out closes the connections of all; one whose connection is
    // closed already fails before.
    const absl::Status closed = GuardTorch("", [&] { sentinel->wait(kAtOnce); });
    if (absl::IsDeadlineExceeded(closed)) break;
  }
}

}  // namespace lockstep::gloo_links
