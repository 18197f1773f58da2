// StopRequest: that a run shall end, from a signal to the loop.
//
// Thread-safe; not for signal handlers (see stop_signals.h).
#ifndef LOCKSTEP_WORKER_TRAINER_STOP_REQUEST_H_
#define LOCKSTEP_WORKER_TRAINER_STOP_REQUEST_H_

#include <atomic>
#include <functional>
#include <utility>

#include "common/base/mutex.h"

namespace lockstep {

class StopRequest {
 public:
  // Asks the run to end at its next good moment.
  void Set(int signal) { signal_ = signal; }
  // The signal that asked; 0: none.
  int signal() const { return signal_; }

  // How to end what the run waits for; null: it cannot be ended. Afterwards the
  // callback before is not running.
  void OnInterrupt(std::function<void()> callback) {
    MutexLock lock(&mu_);
    callback_ = std::move(callback);
  }
  bool can_interrupt() {
    MutexLock lock(&mu_);
    return callback_ != nullptr;
  }
  // Whether there was a callback to run.
  bool Interrupt() {
    MutexLock lock(&mu_);
    if (callback_) callback_();
    return callback_ != nullptr;
  }

 private:
  std::atomic<int> signal_ = 0;
  Mutex mu_;
  std::function<void()> callback_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_STOP_REQUEST_H_
