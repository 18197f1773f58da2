// A bounded queue from many threads to the one that owns some state.
//
// Thread-safe. Close() ends it: later posts are refused, what was posted before
// is still drained.
#ifndef LOCKSTEP_COMMON_BASE_MAILBOX_H_
#define LOCKSTEP_COMMON_BASE_MAILBOX_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace lockstep {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}

  // Errors: ResourceExhausted: full; Unavailable: closed.
  absl::Status Post(T item) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (closed_) return absl::UnavailableError("the mailbox is closed");
      if (items_.size() >= capacity_) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "the mailbox holds its limit of ", capacity_, " items; try again"));
      }
      items_.push_back(std::move(item));
    }
    changed_.SignalAll();
    return absl::OkStatus();
  }

  // For items whose number is bounded elsewhere and that must not be lost.
  // Errors: Unavailable: closed.
  absl::Status PostAboveLimit(T item) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (closed_) return absl::UnavailableError("the mailbox is closed");
      items_.push_back(std::move(item));
    }
    changed_.SignalAll();
    return absl::OkStatus();
  }

  // Takes everything posted so far; waits up to `timeout` for the first item.
  std::vector<T> Drain(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    changed_.AwaitFor(&mu_, timeout, [this] { return closed_ || !items_.empty(); });
    return std::exchange(items_, {});
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      closed_ = true;
    }
    changed_.SignalAll();
  }

  bool closed() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  const std::size_t capacity_;
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_MAILBOX_H_
