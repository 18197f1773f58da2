#include "worker/transport/nccl/waiter.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace lockstep::nccl_link {
namespace {

// Most waits are short, and a sleep costs some 50 us; long ones must leave the core to
// others.
class Backoff {
 public:
  void Pause() {
    if (yields_ < kYields) {
      ++yields_;
      std::this_thread::yield();
      return;
    }
    absl::SleepFor(sleep_);
    sleep_ = std::min(2 * sleep_, kLongestSleep);
  }

 private:
  static constexpr int kYields = 100;
  static constexpr absl::Duration kLongestSleep = absl::Microseconds(50);

  int yields_ = 0;
  absl::Duration sleep_ = absl::Microseconds(1);
};

}  // namespace

absl::Status Waiter::Until(absl::string_view what,
                           const std::function<absl::StatusOr<bool>()>& done) {
  Backoff backoff;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) return absl::OkStatus();
    if (interrupted_) return AwaitInterruption(absl::ZeroDuration());
    if (clock_.Now() > deadline_.load()) {
      return absl::DeadlineExceededError(absl::StrCat(
          what, " did not end within ", absl::FormatDuration(timeout_), " on ", member_,
          "; all ranks came to the operation, so one of them hangs in it or the way between two "
          "GPUs is broken: look for a rank that reports another error, or set NCCL_DEBUG=INFO"));
    }
    backoff.Pause();
  }
}

void Waiter::Interrupt(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (!why_.ok()) return;
  why_ = why;
  interrupted_ = true;
  changed_.SignalAll();
}

absl::Status Waiter::AwaitInterruption(absl::Duration timeout) {
  MutexLock lock(&mu_);
  changed_.AwaitFor(&mu_, timeout, [&] { return !why_.ok(); });
  return why_;
}

bool PollFor(absl::Duration timeout, const std::function<bool()>& done) {
  const RealClock clock;
  const MonoTime end = clock.Now() + timeout;
  Backoff backoff;
  while (!done()) {
    if (clock.Now() > end) return false;
    backoff.Pause();
  }
  return true;
}

}  // namespace lockstep::nccl_link
