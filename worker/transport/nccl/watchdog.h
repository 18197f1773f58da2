// Watchdog: notices that a call into a library does not come back, which no deadline inside
// of the calling thread can.
//
// Watch() is used by one thread, Hasten() by any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_

#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/mono_time.h"
#include "common/base/mutex.h"

namespace lockstep::nccl_link {

class Watchdog {
 public:
  // `bite` is called at most once, from a thread of the watchdog.
  explicit Watchdog(std::function<void()> bite);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // While it lives, the calling thread may be inside of a library.
  class [[nodiscard]] Scope {
   public:
    ~Scope() { watchdog_->SetLatest(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Watchdog;
    Scope(Watchdog* watchdog, std::optional<MonoTime> before)
        : watchdog_(watchdog), before_(before) {}

    Watchdog* const watchdog_;
    const std::optional<MonoTime> before_;
  };
  // It should be back by `latest`; in a scope within another the inner one's time counts.
  Scope Watch(MonoTime latest);
  // If it is in a scope, it should be back by `latest`, if not before.
  void Hasten(MonoTime latest);

 private:
  // Returns the one before.
  std::optional<MonoTime> SetLatest(std::optional<MonoTime> latest);
  // Whether it is late; false: the watchdog goes.
  bool AwaitLateness();

  const std::function<void()> bite_;
  const RealClock clock_;
  Mutex mu_;
  CondVar changed_;
  std::optional<MonoTime> latest_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_
