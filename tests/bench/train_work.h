// What a rank of the train bench works on and gives account of, whichever system
// it belongs to, and whether all did the same. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_BENCH_TRAIN_WORK_H_
#define LOCKSTEP_TESTS_BENCH_TRAIN_WORK_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

// The first image of a rank's batch in a step, counted from 0: the ranks of a step
// take consecutive batches, from the beginning again where whole ones end.
// `images` hold at least one batch.
std::int64_t BatchBegin(std::int64_t step, int rank, int ranks, std::int64_t batch,
                        std::int64_t images);

struct TrainAccount {
  std::string system;
  int rank = 0;
  std::int64_t parameters = 0;  // elements
  std::int64_t buffers = 0;     // tensors
  std::vector<double> losses;   // of each step's batch

  friend bool operator==(const TrainAccount&, const TrainAccount&) = default;
};

nlohmann::json ToJson(const TrainAccount& account);
// Errors: InvalidArgument.
absl::StatusOr<TrainAccount> ParseTrainAccount(const nlohmann::json& json);

// The mean loss of the first and of the last fifth of the steps, at least one.
struct LossChange {
  double first = 0;
  double last = 0;
};
LossChange ChangeOf(std::span<const double> losses);

// That all trained the same model on the same data, and that it learned.
// Errors: FailedPrecondition names system, rank and what is wrong: a loss that did
//   not fall or is not finite; another number of parameters, buffers or steps; in
//   the first steps another loss than the same rank of another system had.
absl::Status CheckTraining(std::span<const TrainAccount> accounts);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_TRAIN_WORK_H_
