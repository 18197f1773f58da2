#include "worker/transport/nccl/watchdog.h"

#include <algorithm>

#include "absl/time/time.h"

namespace lockstep::nccl_link {

Watchdog::Watchdog(std::function<void()> bite)
    : bite_(std::move(bite)),
      thread_([this] {
        if (AwaitLateness()) bite_();
      }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

Watchdog::Scope Watchdog::Watch(MonoTime latest) { return Scope(this, SetLatest(latest)); }

void Watchdog::Hasten(MonoTime latest) {
  MutexLock lock(&mu_);
  if (!latest_.has_value() || *latest_ <= latest) return;
  latest_ = latest;
}

std::optional<MonoTime> Watchdog::SetLatest(std::optional<MonoTime> latest) {
  MutexLock lock(&mu_);
  return std::exchange(latest_, latest);
}

bool Watchdog::AwaitLateness() {
  // Calls come and go far more often than one is late: it looks from time to time, and
  // nobody wakes it for a scope.
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  MutexLock lock(&mu_);
  while (!ending_) {
    const absl::Duration left = latest_.has_value() ? *latest_ - clock_.Now() : kBetweenLooks;
    if (left <= absl::ZeroDuration()) return true;
    changed_.AwaitFor(&mu_, std::min(left, kBetweenLooks), [&] { return ending_; });
  }
  return false;
}

}  // namespace lockstep::nccl_link
