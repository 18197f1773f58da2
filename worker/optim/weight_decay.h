// Weight decay that is added to the gradient. Pure.
#ifndef LOCKSTEP_WORKER_OPTIM_WEIGHT_DECAY_H_
#define LOCKSTEP_WORKER_OPTIM_WEIGHT_DECAY_H_

namespace lockstep {

class AddedDecay {
 public:
  explicit AddedDecay(double weight_decay)
      : decays_(weight_decay != 0), decay_(static_cast<float>(weight_decay)) {}

  // Decay 0 is left out rather than multiplied, as torch does: 0 times infinity is no
  // number.
  float Added(float gradient, float param) const {
    return decays_ ? gradient + decay_ * param : gradient;
  }

 private:
  bool decays_;
  float decay_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_WEIGHT_DECAY_H_
