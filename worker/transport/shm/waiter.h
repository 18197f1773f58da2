// Waiter: waits for counters that other processes advance.
//
// A short spin that gives the processor away, then sleep on a futex. Every wait
// ends at its deadline, when a peer's process is gone, or when any rank poisons
// the segment, whose reason all ranks then get. Used by one thread; PoisonWith()
// may be called from any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_SHM_WAITER_H_
#define LOCKSTEP_WORKER_TRANSPORT_SHM_WAITER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mono_time.h"
#include "worker/transport/shm/control_block.h"

namespace lockstep::shm {

class Waiter {
 public:
  // `control` and `slots` must outlive it.
  Waiter(ControlBlock* control, std::span<RankSlot> slots, int rank,
         std::vector<std::string> members);
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  using Counter = std::atomic<std::uint64_t> RankSlot::*;

  // Makes `value` of this rank's counter seen, and wakes who sleeps. All that was
  // written before is seen by those who saw it.
  void Publish(Counter counter, std::uint64_t value);
  // For this rank's other marks: wakes who sleeps.
  void Ring();

  // Waits until the counter of every rank is at least `value`. Errors:
  //   DeadlineExceeded: ranks that are not there, named; all ranks are told.
  //   Unavailable: a process that is gone, named; all ranks are told.
  //   or what a rank poisoned the segment with.
  absl::Status AwaitAll(Counter counter, std::uint64_t value, MonoTime deadline);
  absl::Status AwaitOne(int rank, Counter counter, std::uint64_t value, MonoTime deadline);

  // Ends all waits of all ranks; the first reason counts.
  void PoisonWith(const absl::Status& why);

 private:
  // The reason, or OK.
  absl::Status PoisonReason() const;
  absl::Status Await(int rank, Counter counter, std::uint64_t value, MonoTime deadline);
  absl::Status SleepUntil(int rank, Counter counter, std::uint64_t value, MonoTime deadline);
  // Whether the process of that rank has ended or left.
  bool IsGone(int rank);
  absl::Status Missing(Counter counter, std::uint64_t value);

  ControlBlock* const control_;
  const std::span<RankSlot> slots_;
  const int rank_;
  const std::vector<std::string> members_;
  const RealClock clock_;
  std::optional<MonoTime> started_;  // of the wait in progress; none: no need to wait yet
  std::vector<int> process_fds_;  // by rank; -1: not opened
};

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_TRANSPORT_SHM_WAITER_H_
