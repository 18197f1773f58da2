#include "worker/transport/nccl/watchdog.h"

#include <algorithm>
#include <utility>

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

Watchdog::Scope Watchdog::Watch(MonoTime latest) {
  MutexLock lock(&mu_);
  return Scope(this, latest_.insert(latest_.end(), latest));
}

void Watchdog::Close(std::list<MonoTime>::iterator place) {
  MutexLock lock(&mu_);
  latest_.erase(place);
}

void Watchdog::Hasten(MonoTime latest) {
  MutexLock lock(&mu_);
  for (MonoTime& each : latest_) each = std::min(each, latest);
}

bool Watchdog::AwaitLateness() {
  // Calls come and go far more often than one is late: it looks from time to time, and
  // nobody wakes it for a scope.
  constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
  MutexLock lock(&mu_);
  while (!ending_) {
    absl::Duration wait = kBetweenLooks;
    for (const MonoTime latest : latest_) wait = std::min(wait, latest - clock_.Now());
    if (wait <= absl::ZeroDuration()) return true;
    changed_.AwaitFor(&mu_, wait, [&] { return ending_; });
  }
  return false;
}

}  // namespace lockstep::nccl_link
