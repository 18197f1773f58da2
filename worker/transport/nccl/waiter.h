// Waiter: how a rank waits for what nobody wakes it for, such as a GPU: it polls, and
// gives up at a deadline or when somebody says why.
//
// Until() is used by one thread at a time; the rest by any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_WAITER_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_WAITER_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"

namespace lockstep::nccl_link {

class Waiter {
 public:
  // `member` as messages name this rank; `timeout` as they name the time for an operation.
  Waiter(std::string member, absl::Duration timeout)
      : member_(std::move(member)), timeout_(timeout) {}

  // Of the wait in progress and of those that follow.
  void SetDeadline(MonoTime deadline) { deadline_ = deadline; }

  // Until `done` is true, or an error. Other errors: the reason of Interrupt();
  //   DeadlineExceeded: names `what`, "the sending of gradients".
  absl::Status Until(absl::string_view what, const std::function<absl::StatusOr<bool>()>& done);

  // Ends this wait and all later ones. The first reason counts.
  void Interrupt(const absl::Status& why);
  // The reason, if there is one or comes within `timeout`; else OK.
  absl::Status AwaitInterruption(absl::Duration timeout);

 private:
  const std::string member_;
  const absl::Duration timeout_;
  const RealClock clock_;
  std::atomic<MonoTime> deadline_ = MonoTime();

  std::atomic<bool> interrupted_ = false;  // whether why_ is set
  Mutex mu_;
  CondVar changed_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

// Polls `done` until it is true; false: `timeout` has passed before.
bool PollFor(absl::Duration timeout, const std::function<bool()>& done);

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_WAITER_H_
