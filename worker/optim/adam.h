// Adam on one element (Kingma & Ba 2015, algorithm 1). Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAM_H_
#define LOCKSTEP_WORKER_OPTIM_ADAM_H_

#include <cstdint>

#include "worker/optim/adam_moments.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/weight_decay.h"

namespace lockstep {

class AdamRule {
 public:
  static constexpr int kStates = 2;

  AdamRule(const Adam& config, std::int64_t step)
      : moments_(config, step), decay_(config.weight_decay) {}

  float Updated(float param, float gradient, float& exp_avg, float& exp_avg_sq) const {
    return param - moments_.Move(decay_.Added(gradient, param), exp_avg, exp_avg_sq);
  }

 private:
  AdamMoments moments_;
  AddedDecay decay_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAM_H_
