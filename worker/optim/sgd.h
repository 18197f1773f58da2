// SGD on one element (Sutskever et al. 2013, in torch's variant). Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_SGD_H_
#define LOCKSTEP_WORKER_OPTIM_SGD_H_

#include <cstdint>

#include "worker/optim/optimizer.h"
#include "worker/optim/weight_decay.h"

namespace lockstep {

// With config.momentum 0.
class SgdRule {
 public:
  static constexpr int kStates = 0;

  SgdRule(const Sgd& config, std::int64_t step)
      : lr_(static_cast<float>(config.lr)), decay_(config.weight_decay) {}

  float Updated(float param, float gradient) const {
    return param - lr_ * decay_.Added(gradient, param);
  }

 private:
  float lr_;
  AddedDecay decay_;
};

// The first step takes the gradient for the momentum, undampened.
class MomentumRule {
 public:
  static constexpr int kStates = 1;

  MomentumRule(const Sgd& config, std::int64_t step)
      : lr_(static_cast<float>(config.lr)),
        momentum_(static_cast<float>(config.momentum)),
        fresh_(static_cast<float>(1.0 - config.dampening)),
        is_first_(step == 1),
        nesterov_(config.nesterov),
        decay_(config.weight_decay) {}

  float Updated(float param, float gradient, float& velocity) const {
    const float d = decay_.Added(gradient, param);
    velocity = is_first_ ? d : velocity * momentum_ + d * fresh_;
    return param - lr_ * (nesterov_ ? d + velocity * momentum_ : velocity);
  }

 private:
  float lr_;
  float momentum_;
  float fresh_;
  bool is_first_;
  bool nesterov_;
  AddedDecay decay_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_SGD_H_
