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

inline constexpr std::int64_t kAllFinite = -1;

// Trivially copyable: transports move it as bytes.
struct ControlWord {
  std::int64_t step = 0;        // the step being taken; must be equal on all ranks
  std::int64_t log_number = 0;  // newest control entry this rank knows
  std::int64_t samples = 0;     // in this rank's part of the batch; may be 0
  float weight = 1;   // of this rank's gradient in the sum; 0: it does not count
  float largest = 0;  // magnitude in this rank's gradient
  // The plan's number of the first parameter in whose gradient this rank has an Inf or
  // NaN; kAllFinite: there is none.
  std::int64_t not_finite = kAllFinite;
  UpdateSettings settings;
  // The step of the last checkpoint that this rank is through with writing its part of.
  std::int64_t saved = 0;
};

struct NotFinite {
  int rank = 0;
  std::int64_t placement = 0;  // the first such of that rank

  bool operator==(const NotFinite&) const = default;
};

struct Agreement {
  LogNumber log_number;      // known to every rank: entries up to it take effect
  std::int64_t samples = 0;  // of the whole batch
  std::vector<std::int64_t> samples_by_rank;
  std::vector<float> weights;  // by rank
  // The sum over ranks of weight * gradient is finite, whatever the order of additions.
  bool finite = true;
  std::vector<NotFinite> not_finite;  // in rank order; without ranks that do not count
  UpdateSettings settings;
  // The same of all ranks: that of the slowest.
  std::int64_t saved = 0;
};

// Combines the words of all ranks; `members` names them in messages.
// Errors: FailedPrecondition: ranks are at different steps or have different
//   settings, or samples are negative; the message names the ranks.
absl::StatusOr<Agreement> Combine(std::span<const ControlWord> words,
                                  const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CORE_AGREEMENT_H_
