// TrainingReport: what one worker did, written as JSON when an epoch begins and when it ends.
#ifndef LOCKSTEP_WORKER_TRAINER_REPORT_H_
#define LOCKSTEP_WORKER_TRAINER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/protocol/messages.h"

namespace lockstep {

struct TrainingReport {
  struct Evaluation {
    std::int64_t step = 0;
    double accuracy = 0;  // 0 to 1, on the test images
    double loss = 0;      // mean
  };
  struct Loss {
    std::int64_t step = 0;
    double loss = 0;  // of this rank's batch
  };
  struct Drift {
    std::int64_t step = 0;
    double largest = 0;
    std::string buffer;
  };
  // From the step behind `effective_step` on, `revision` was in force.
  struct Switch {
    std::int64_t revision = 0;
    std::int64_t log_number = 0;
    std::int64_t effective_step = 0;
  };

  // One of the job's epochs in which this worker trained.
  struct Epoch {
    std::int64_t epoch = 0;
    std::int64_t step = 0;     // committed before it
    std::int64_t samples = 0;  // of all ranks, committed with those steps
    int rank = 0;
    int world_size = 0;
    std::string parameter_digest;  // at its begin
    // From the step before, or the begin of training, to the first step that was taken in it or
    // as it began. Nothing: none was.
    std::optional<double> stall_seconds = std::nullopt;
  };

  int rank = 0;
  std::string worker;
  int world_size = 0;
  std::string transport;
  std::int64_t steps = 0;
  std::int64_t images = 0;  // trained on by this rank
  double seconds = 0;       // of training, evaluations and drift left out
  std::vector<Evaluation> evaluations;
  std::vector<Loss> losses;
  std::vector<Drift> drift;
  std::vector<Switch> switches;
  std::vector<Epoch> epochs;
  std::string buffer_digest;     // over all buffers at the end
  std::string parameter_digest;  // over all parameters at the end
  std::int64_t optimizer_bytes = 0;
  SyncCounters sync;
  std::int64_t revision = 0;  // in force at the end

  double images_per_second() const { return seconds > 0 ? images / seconds : 0; }
};

// Numbers that JSON has no word for (NaN, infinities) become null.
std::string ToJson(const TrainingReport& report);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_REPORT_H_
