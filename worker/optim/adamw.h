// AdamW on one element (Loshchilov & Hutter 2019, algorithm 2, in torch's order: the
// decay comes first). Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAMW_H_
#define LOCKSTEP_WORKER_OPTIM_ADAMW_H_

#include <cstdint>

#include "worker/optim/adam_moments.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

class AdamWRule {
 public:
  static constexpr int kStates = 2;

  AdamWRule(const AdamW& config, std::int64_t step)
      : moments_(config, step), kept_(static_cast<float>(1.0 - config.lr * config.weight_decay)) {}

  float Updated(float param, float gradient, float& exp_avg, float& exp_avg_sq) const {
    // 1 without decay, which changes no bit.
    return param * kept_ - moments_.Move(gradient, exp_avg, exp_avg_sq);
  }

 private:
  AdamMoments moments_;
  float kept_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAMW_H_
