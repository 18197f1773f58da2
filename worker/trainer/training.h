// The training loop of one worker: MNIST, a classifier, a session, a report.
//
//   for each step: BeforeForward, forward, backward, Step
//   now and then:  BeforeEvaluation and the whole test set; how far buffers drift
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAINING_H_
#define LOCKSTEP_WORKER_TRAINER_TRAINING_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "worker/engine/engine_options.h"
#include "worker/optim/optimizer.h"
#include "worker/session/session_options.h"
#include "worker/trainer/monitor.h"
#include "worker/trainer/stop_request.h"

namespace lockstep {

// A moment in training, for tests of failures.
struct TrainingMoment {
  StepPhase phase = StepPhase::kForward;
  std::int64_t step = 0;  // committed before
};

struct TrainingOptions {
  SessionOptions session;
  OptimizerConfig optimizer = AdamW{.lr = 2e-3};
  std::string model = "conv";  // see classifier.h
  std::string data;            // folder of the MNIST files
  std::int64_t epochs = 1;     // passes over the data
  std::int64_t steps = 0;      // stop after so many; 0: after the epochs
  std::int64_t batch = 64;     // samples of each rank in each step
  std::uint64_t seed = 1;
  std::set<std::int64_t> evaluate_at;  // steps; the end is always one
  std::int64_t evaluate_every = 0;     // steps; 0: only those above
  std::int64_t drift_every = 10;       // steps between measurements; 0: never
  std::optional<TrainingMoment> end_at;  // the process ends there, as by SIGKILL
  std::string report;                  // file to write at the end; empty: none

  // Errors: InvalidArgument names the flag, its value and what is allowed.
  absl::Status Validate() const;
};

// Trains to the end, or until `stop` asks for it (Cancelled): after the step in
// progress, or within it if interrupted. What comes before the job's workers are
// together cannot be interrupted.
// `monitor`, which outlives the call, is told how it goes.
// Errors: those of the data files, the model, Session, and the report.
absl::Status Train(const TrainingOptions& options, StopRequest* stop, TrainingMonitor* monitor);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_TRAINING_H_
