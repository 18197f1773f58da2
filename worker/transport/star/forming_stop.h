// FormingStop: ends the forming of a star from another thread. Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_STOP_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_STOP_H_

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace lockstep {

class FormingStop {
 public:
  FormingStop();
  ~FormingStop();
  FormingStop(const FormingStop&) = delete;
  FormingStop& operator=(const FormingStop&) = delete;

  // Not OK. The first reason counts.
  void Stop(const absl::Status& why);
  absl::Status why() const;
  // Readable once it was stopped; negative, which poll() ignores, if the system gave none.
  int fd() const { return fd_; }

 private:
  const int fd_;
  mutable Mutex mu_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_STOP_H_
