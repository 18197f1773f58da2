// std::mutex with the annotations that clang's -Wthread-safety reads.
//
// Not absl::Mutex: Debian's is built without ThreadSanitizer's annotations, so
// TSan would report races that are none.
#ifndef LOCKSTEP_COMMON_BASE_MUTEX_H_
#define LOCKSTEP_COMMON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace lockstep {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    mu_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mu_;
};

class CondVar {
 public:
  // Waits until `condition()` holds or `timeout` has passed; returns whether it
  // holds. `mu` is held before and after, and while `condition` runs.
  template <typename Condition>
  bool AwaitFor(Mutex* mu, absl::Duration timeout, Condition condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    bool holds;
    // A wait_for of the longest duration overflows inside the library.
    if (timeout > absl::Hours(24 * 365)) {
      cv_.wait(lock, condition);
      holds = true;
    } else {
      holds = cv_.wait_for(lock, absl::ToChronoNanoseconds(timeout), condition);
    }
    lock.release();
    return holds;
  }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_MUTEX_H_
