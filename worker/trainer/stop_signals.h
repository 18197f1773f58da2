// StopSignals: SIGINT and SIGTERM end a run.
//
//   first signal --> the request is set: the run ends after its step
//     | after `grace`, as when the step waits for a peer
//     v
//   what it waits for is interrupted; where nothing can be, the process exits
//   second signal --> the process exits
//
// The exit code is 128 + the signal. Make it before the process has other threads.
#ifndef LOCKSTEP_WORKER_TRAINER_STOP_SIGNALS_H_
#define LOCKSTEP_WORKER_TRAINER_STOP_SIGNALS_H_

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "worker/trainer/stop_request.h"

namespace lockstep {

class StopSignals {
 public:
  // `request` outlives it.
  explicit StopSignals(StopRequest* request, absl::Duration grace = absl::Seconds(1));
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void Watch();

  StopRequest* const request_;
  const absl::Duration grace_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_STOP_SIGNALS_H_
