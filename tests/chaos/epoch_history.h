// EpochHistory: the life of a job, put together from what its workers reported, and whether
// it computed what it says.
//
// A worker reports the epochs in which it trained; none needs to have seen all. Values;
// thread-compatible.
#ifndef LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_
#define LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_

#include <cstdint>
#include <map>
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

  // Whether `serial`, which has taken no step, gets the same samples and parameters at the begin of each epoch, and
  // `digest` at the end, behind `steps`. Errors: Internal: the first difference, or a part of the history
  // that nobody reported; else SerialTraining's.
  absl::Status Replay(std::int64_t steps, const std::string& digest, SerialTraining& serial) const;

  struct Epoch {
    std::int64_t step = 0;  // committed before it
    std::int64_t samples = 0;
    int world_size = 0;
    std::string digest;
    std::string reporter;
  };
  const std::map<std::int64_t, Epoch>& epochs() const { return epochs_; }  // by number
  // Of a worker that trained before and in the epoch that followed; 0: nobody did.
  double longest_stall_seconds() const { return longest_stall_seconds_; }

 private:
  std::map<std::int64_t, Epoch> epochs_;
  double longest_stall_seconds_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_EPOCH_HISTORY_H_
