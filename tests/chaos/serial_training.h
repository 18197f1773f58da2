// SerialTraining: what a job must compute, by one process without ranks, transports, shards and
// epochs: the trainer's model, and in each step the batch of each rank one after the other.
//
// Sums, scale and update are the product's own functions on whole tensors; tests/parity holds
// those to LibTorch. So parameters can be compared with a job's bit for bit, and what differs is
// how the ranks went together. Used by one thread; sets LibTorch's threads to one.
#ifndef LOCKSTEP_TESTS_CHAOS_SERIAL_TRAINING_H_
#define LOCKSTEP_TESTS_CHAOS_SERIAL_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

class SerialTraining {
 public:
  // `flags`: the trainer's command line. Those count that say what is computed: model, data, seed,
  // batch, optimizer. Errors: InvalidArgument: flags; those of the data files and the model.
  static absl::StatusOr<std::unique_ptr<SerialTraining>> Create(std::vector<std::string> flags);
  ~SerialTraining();

  // One step as `world_size` ranks take it. Errors: what LibTorch or the optimizer say.
  absl::Status Step(int world_size);

  std::int64_t step() const;     // taken
  std::int64_t samples() const;  // of all ranks, in them
  std::string ParameterDigest() const;  // as a trainer's report has it

 private:
  class Impl;
  explicit SerialTraining(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_SERIAL_TRAINING_H_
