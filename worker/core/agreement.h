// The agreement of a step: the one small exchange that keeps ranks in lockstep.
//
// Each rank contributes a word; all ranks compute the same result from all words
// in rank order. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_CORE_AGREEMENT_H_
#define LOCKSTEP_WORKER_CORE_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"

namespace lockstep {

// How the update is made; must be equal on all ranks.
struct UpdateSettings {
  double learning_rate = 0;
  double max_grad_norm = 0;  // of the averaged gradient; 0: it is not clipped
  double loss_scale = 1;     // what gradients are divided by
};

// Trivially copyable: transports move it as bytes.
struct ControlWord {
  std::int64_t step = 0;        // the step being taken; must be equal on all ranks
  std::int64_t log_number = 0;  // newest control entry this rank knows
  std::int64_t samples = 0;     // in this rank's part of the batch; may be 0
  std::int64_t finite = 1;      // 0: this rank's shard of the gradient has an Inf or NaN
  double squared_norm = 0;      // of this rank's shard of the summed gradient
  UpdateSettings settings;
};

struct Agreement {
  LogNumber log_number;      // known to every rank: entries up to it take effect
  std::int64_t samples = 0;  // of the whole batch
  std::vector<std::int64_t> samples_by_rank;
  bool finite = true;        // the whole gradient is finite
  double squared_norm = 0;   // of the whole gradient, summed in rank order
  UpdateSettings settings;
};

// Combines the words of all ranks; `members` names them in messages.
// Errors: FailedPrecondition: ranks are at different steps or have different
//   settings, or samples are negative; the message names the ranks.
absl::StatusOr<Agreement> Combine(std::span<const ControlWord> words,
                                  const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CORE_AGREEMENT_H_
