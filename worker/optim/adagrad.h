// Adagrad on one element (Duchi et al. 2011, with the diagonal of the matrix). Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_
#define LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_

#include <cmath>
#include <cstdint>

#include "worker/optim/optimizer.h"
#include "worker/optim/weight_decay.h"

namespace lockstep {

class AdagradRule {
 public:
  static constexpr int kStates = 1;

  AdagradRule(const Adagrad& config, std::int64_t step)
      : step_size_(static_cast<float>(
            config.lr / (1.0 + static_cast<double>(step - 1) * config.lr_decay))),
        eps_(static_cast<float>(config.eps)),
        decay_(config.weight_decay) {}

  float Updated(float param, float gradient, float& sum) const {
    const float d = decay_.Added(gradient, param);
    sum = sum + d * d;
    return param - step_size_ * d / (std::sqrt(sum) + eps_);
  }

 private:
  float step_size_;
  float eps_;
  AddedDecay decay_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAGRAD_H_
