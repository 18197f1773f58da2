// Watchdog: notices that a call into a library does not come back, which no deadline inside
// of the calling thread can.
//
// Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_

#include <functional>
#include <list>
#include <thread>

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

  // While it lives, its thread may be inside of a library.
  class [[nodiscard]] Scope {
   public:
    ~Scope() { watchdog_->Close(place_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Watchdog;
    Scope(Watchdog* watchdog, std::list<MonoTime>::iterator place)
        : watchdog_(watchdog), place_(place) {}

    Watchdog* const watchdog_;
    const std::list<MonoTime>::iterator place_;
  };
  // The thread should be back by `latest`.
  Scope Watch(MonoTime latest);
  // Those that are in a scope should be back by `latest`, if not before.
  void Hasten(MonoTime latest);

 private:
  void Close(std::list<MonoTime>::iterator place);
  // Whether one is late; false: the watchdog goes.
  bool AwaitLateness();

  const std::function<void()> bite_;
  const RealClock clock_;
  Mutex mu_;
  CondVar changed_;
  std::list<MonoTime> latest_ ABSL_GUARDED_BY(mu_);  // of each scope
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_WATCHDOG_H_
