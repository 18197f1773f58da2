// TrainingMonitor: what training tells of itself while it runs, for those who watch.
//
// Thread-safe, but for what StepTimes says.
#ifndef LOCKSTEP_WORKER_TRAINER_MONITOR_H_
#define LOCKSTEP_WORKER_TRAINER_MONITOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/protocol/messages.h"
#include "worker/trainer/step_times.h"

namespace lockstep {

// Behind a step, or as an epoch or an evaluation begins.
struct TrainingStatus {
  std::int64_t epoch = 0;
  int rank = 0;
  int world_size = 0;
  std::int64_t step = 0;  // committed
  std::int64_t revision = 0;
  std::int64_t recoveries = 0;  // epochs that were joined after the first
  SyncCounters sync;            // of the epoch
  absl::Duration sync_time;
  std::int64_t optimizer_bytes = 0;
  std::map<std::string, double> reported;  // "loss"
};

class TrainingMonitor {
 public:
  StepTimes& times() { return times_; }
  const StepTimes& times() const { return times_; }

  // Nothing: this worker is in no epoch.
  void Set(std::optional<TrainingStatus> status) {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }
  std::optional<TrainingStatus> status() const {
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  StepTimes times_;
  mutable Mutex mu_;
  std::optional<TrainingStatus> status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_MONITOR_H_
