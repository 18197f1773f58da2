// Links: messages between two ranks of an epoch by Gloo, many under way at once.
//
// A message is sent straight from and received straight into the caller's memory,
// which must stay until the message is awaited or the links are closed. Messages of
// one tag between two ranks arrive in the order in which both sides ask for them.
// After the first error the links are closed: nothing is under way and no memory is
// written any more, and peers that wait find out at once.
//
// Gloo checks nothing and kills the process on messages of another length than
// expected, so both sides must have agreed on what moves.
//
// Used by one thread at a time; Interrupt() may be called from any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_LINKS_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "worker/transport/transport.h"

namespace lockstep::gloo_links {

class Links {
 public:
  // Names a message from when it is under way until it was awaited.
  using Ticket = std::int64_t;

  // Connects all ranks. Errors: DeadlineExceeded, Unavailable; ranks are named.
  static absl::StatusOr<std::unique_ptr<Links>> Form(
      c10::intrusive_ptr<c10d::Store> store, const Group& group, const std::string& interface);
  ~Links();

  // Starts a message of at least one byte; neither waits. `tag` below kMaxTag.
  // Errors: as Await().
  absl::StatusOr<Ticket> Send(int peer, std::int32_t tag, const std::byte* data,
                              std::int64_t bytes);
  absl::StatusOr<Ticket> Receive(int peer, std::int32_t tag, std::byte* data,
                                 std::int64_t bytes);
  // Until it is sent or received. Errors: DeadlineExceeded, Unavailable with the ranks
  //   that are missing; Aborted after Interrupt() here or on a peer.
  absl::Status Await(Ticket ticket, MonoTime deadline);

  // The same, as long as nothing else is to be done: whether it is sent or received;
  // false: Poke() was called since this was called last. The deadline is that of
  // ComeBack().
  absl::StatusOr<bool> AwaitUnlessPoked(Ticket ticket);
  void Poke();  // any thread

  // The thread that the links belong to hands them to another and is busy elsewhere:
  // waits have no deadline, and this rank speaks of a fault only when it is back, as it
  // may be the one that the others miss.
  void GoAway();
  // It is back, and waits for that other thread until `deadline`.
  void ComeBack(MonoTime deadline);
  // The links are its own again.
  void TakeBack();

  // Of all messages that were awaited. Any thread.
  TrafficCounters traffic() const;

  // Ends the wait of this rank at once, and those of peers.
  void Interrupt(const absl::Status& why);

  static constexpr std::int32_t kMaxTag = 1 << 30;

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  Links(c10::intrusive_ptr<c10d::Store> store, const Group& group,
        c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo);

  template <typename Start>
  absl::StatusOr<Ticket> Begin(absl::string_view what, int peer, TrafficCounters traffic,
                               Start start);
  absl::StatusOr<bool> Wait(Ticket ticket, MonoTime deadline, bool heeds_pokes);
  // Closes the links. The fault with the ranks that are missing.
  absl::Status Explain(const absl::Status& fault);
  void Close();
  void Watch();
  bool IsGone(int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const c10::intrusive_ptr<c10d::Store> store_;
  const Group group_;
  const RealClock clock_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  struct Message {
    int peer;
    Work work;
    TrafficCounters traffic;
  };
  std::map<Ticket, Message> under_way_;
  Ticket next_ = 0;

  mutable Mutex mu_;
  TrafficCounters traffic_ ABSL_GUARDED_BY(mu_);
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;    // the watch
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status interruption_ ABSL_GUARDED_BY(mu_);
  // What the waiting thread waits for, and why that was broken off.
  Work awaited_ ABSL_GUARDED_BY(mu_);
  int awaited_peer_ ABSL_GUARDED_BY(mu_) = 0;
  MonoTime deadline_ ABSL_GUARDED_BY(mu_);
  absl::Status broken_off_ ABSL_GUARDED_BY(mu_);
  bool heeds_pokes_ ABSL_GUARDED_BY(mu_) = false;  // that wait
  bool poked_ ABSL_GUARDED_BY(mu_) = false;
  bool away_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<MonoTime> standing_deadline_ ABSL_GUARDED_BY(mu_);  // of every wait
  // By rank, none for this one: the receive of a message that never comes.
  std::vector<Work> sentinels_ ABSL_GUARDED_BY(mu_);
  std::byte never_{};
  std::thread watch_;
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_LINKS_H_
