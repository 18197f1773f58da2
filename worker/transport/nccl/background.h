// Background: a transport's communication thread, for work that goes on after a call has
// returned.
//
// Used by one thread; what it is given runs on its own.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_BACKGROUND_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_BACKGROUND_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace lockstep::nccl_link {

class Background {
 public:
  using Work = std::function<absl::Status()>;

  Background() = default;
  // There is no work that was not joined.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Returns at once; it begins when all that was started before has ended, and not at all
  // if that failed.
  void Start(Work work);
  // Whether something was started since Join().
  bool busy() const { return busy_; }
  // Waits for all that was started: the first error.
  absl::Status Join();

 private:
  void Run();

  bool busy_ = false;
  Mutex mu_;
  CondVar changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mu_);  // the first one is running
  absl::Status status_ ABSL_GUARDED_BY(mu_);     // since Join()
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // from the first Start() on
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_BACKGROUND_H_
