#include "worker/transport/shm/waiter.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep::shm {
namespace {

// About as long as a short operation takes; longer waits sleep. On a busy host one
// yield may take a whole time slice, so time bounds the spin as well.
constexpr int kSpins = 500;
constexpr absl::Duration kSpinTime = absl::Milliseconds(1);
// Between looks at the peers' processes and the deadline.
constexpr absl::Duration kSlice = absl::Milliseconds(20);

void FutexWait(std::atomic<std::uint32_t>* word, std::uint32_t seen, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), FUTEX_WAIT, seen, &relative, nullptr,
          0);
}

void FutexWakeAll(std::atomic<std::uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

Waiter::Waiter(ControlBlock* control, std::span<RankSlot> slots, int rank,
               std::vector<std::string> members)
    : control_(control),
      slots_(slots),
      rank_(rank),
      members_(std::move(members)),
      process_fds_(slots.size(), -1) {}

Waiter::~Waiter() {
  for (const int fd : process_fds_) {
    if (fd >= 0) close(fd);
  }
}

void Waiter::Publish(Counter counter, std::uint64_t value) {
  // Sequentially consistent, as is the sleepers' count: either the sleeper sees
  // the value before it sleeps, or it is seen here and woken.
  (slots_[rank_].*counter).store(value, std::memory_order_seq_cst);
  Ring();
}

void Waiter::Ring() {
  if (control_->bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  control_->bell.rings.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(&control_->bell.rings);
}

absl::Status Waiter::AwaitAll(Counter counter, std::uint64_t value, MonoTime deadline) {
  started_.reset();
  for (int rank = 0; rank < static_cast<int>(slots_.size()); ++rank) {
    LOCKSTEP_RETURN_IF_ERROR(Await(rank, counter, value, deadline));
  }
  return absl::OkStatus();
}

absl::Status Waiter::AwaitOne(int rank, Counter counter, std::uint64_t value, MonoTime deadline) {
  started_.reset();
  return Await(rank, counter, value, deadline);
}

absl::Status Waiter::Await(int rank, Counter counter, std::uint64_t value, MonoTime deadline) {
  const std::atomic<std::uint64_t>& awaited = slots_[rank].*counter;
  if (awaited.load(std::memory_order_acquire) >= value) return absl::OkStatus();
  const MonoTime spun_since = clock_.Now();
  if (!started_.has_value()) started_ = spun_since;
  for (int spin = 0; spin < kSpins && clock_.Now() - spun_since < kSpinTime; ++spin) {
    sched_yield();
    if (awaited.load(std::memory_order_acquire) >= value) return absl::OkStatus();
  }
  return SleepUntil(rank, counter, value, deadline);
}

absl::Status Waiter::SleepUntil(int rank, Counter counter, std::uint64_t value,
                                MonoTime deadline) {
  const std::atomic<std::uint64_t>& awaited = slots_[rank].*counter;
  Bell& bell = control_->bell;
  while (true) {
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
    const bool come = awaited.load(std::memory_order_seq_cst) >= value;
    absl::Status poison = PoisonReason();
    const absl::Duration left = deadline - clock_.Now();
    if (!come && poison.ok() && left > absl::ZeroDuration()) {
      FutexWait(&bell.rings, rings, std::min(left, kSlice));
    }
    bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    // What took place counts, also if the epoch ended right after.
    if (awaited.load(std::memory_order_acquire) >= value) return absl::OkStatus();
    if (!poison.ok()) return poison;

    absl::Status error;
    for (int peer = 0; peer < static_cast<int>(slots_.size()) && error.ok(); ++peer) {
      if ((slots_[peer].*counter).load(std::memory_order_acquire) >= value || !IsGone(peer)) {
        continue;
      }
      // It may have come and gone since the look before.
      if ((slots_[peer].*counter).load(std::memory_order_acquire) >= value) continue;
      error = absl::UnavailableError(
          absl::StrCat(MemberText(members_, peer), " is gone: its process ",
                       slots_[peer].pid.load(), " has ended or left the epoch"));
    }
    if (error.ok() && left <= absl::ZeroDuration()) error = Missing(counter, value);
    if (!error.ok()) {
      PoisonWith(error);
      // Another rank's reason may have come first: all ranks give the same one.
      absl::Status first = PoisonReason();
      return first.ok() ? error : first;
    }
  }
}

bool Waiter::IsGone(int rank) {
  if (slots_[rank].left.load(std::memory_order_acquire) != 0) return true;
  const pid_t pid = slots_[rank].pid.load(std::memory_order_acquire);
  if (pid == 0 || pid == getpid()) return false;
  int& fd = process_fds_[rank];
  if (fd < 0) fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) {
    if (errno == ESRCH) return true;
    return kill(pid, 0) != 0 && errno == ESRCH;
  }
  pollfd poll_fd = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, /*timeout=*/0) == 1;
}

absl::Status Waiter::Missing(Counter counter, std::uint64_t value) {
  std::vector<std::string> missing;
  for (int rank = 0; rank < static_cast<int>(slots_.size()); ++rank) {
    if ((slots_[rank].*counter).load(std::memory_order_acquire) < value) {
      missing.push_back(MemberText(members_, rank));
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat(ListNames(missing), " did not come within ",
                   absl::FormatDuration(clock_.Now() - *started_)));
}

void Waiter::PoisonWith(const absl::Status& why) {
  Poison& poison = control_->poison;
  std::uint32_t expected = Poison::kNone;
  if (poison.state.compare_exchange_strong(expected, Poison::kBeingWritten)) {
    poison.code = static_cast<std::int32_t>(why.code());
    const std::size_t size = std::min(why.message().size(), kMaxReasonBytes);
    std::memcpy(poison.reason, why.message().data(), size);
    poison.reason_bytes = static_cast<std::uint32_t>(size);
    poison.state.store(Poison::kSet, std::memory_order_seq_cst);
  }
  Ring();
}

absl::Status Waiter::PoisonReason() const {
  const Poison& poison = control_->poison;
  if (poison.state.load(std::memory_order_seq_cst) != Poison::kSet) return absl::OkStatus();
  const std::size_t size = std::min<std::size_t>(poison.reason_bytes, kMaxReasonBytes);
  const auto code = static_cast<absl::StatusCode>(poison.code);
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
                      absl::string_view(poison.reason, size));
}

}  // namespace lockstep::shm
