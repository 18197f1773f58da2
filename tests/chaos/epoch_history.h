// EpochHistory: the life of a job, put together from what its workers reported, and whether
// it computed what it says.
//
// A worker reports the epochs in which it trained; none needs to have seen all. Values;
// thread-compatible.
#ifndef LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_
#define LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/serial_training.h"

namespace lockstep {

class EpochHistory {
 public:
  // The epochs of a trainer's report (worker/trainer/report.h). `worker` is named in messages.
  // Errors: Internal: it is no report, or says of an epoch other than a report before; both named.
  absl::Status Add(const std::string& worker, const nlohmann::json& report);

  // Whether `serial`, which has taken no step, gets the same samples and parameters at the begin of
  // each epoch, and `digest` at the end, behind `steps`. Errors: Internal: the first difference, or
  // the begin was reported by nobody; else SerialTraining's.
  absl::Status Replay(std::int64_t steps, const std::string& digest, SerialTraining& serial) const;

  struct Epoch {
    std::int64_t step = 0;  // committed before it
    std::int64_t samples = 0;
    int world_size = 0;
    std::string digest;
    // The job's time without a step before it: the shortest that a worker tells who had trained
    // before. One that was stopped itself was late for more. Nothing: nobody tells.
    std::optional<double> stall_seconds;
    std::string reporter;
  };
  const std::map<std::int64_t, Epoch>& epochs() const { return epochs_; }  // by number
  double longest_stall_seconds() const;  // of any epoch
  // Of those behind epoch `after` up to `last`; 0: none began.
  double longest_stall_seconds(std::int64_t after, std::int64_t last) const;

 private:
  std::map<std::int64_t, Epoch> epochs_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_
