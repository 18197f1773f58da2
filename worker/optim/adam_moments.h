// AdamMoments: what Adam and AdamW share, their moments and bias correction;
// they differ in weight decay alone. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_ADAM_MOMENTS_H_
#define LOCKSTEP_WORKER_OPTIM_ADAM_MOMENTS_H_

#include <cmath>
#include <cstdint>

namespace lockstep {

// The constants of step number `step`, from 1, in float as the kernels use them.
class AdamMoments {
 public:
  template <typename Config>  // Adam or AdamW
  AdamMoments(const Config& config, std::int64_t step)
      : step_size_(static_cast<float>(config.lr / Correction(config.beta1, step))),
        root_correction2_(static_cast<float>(std::sqrt(Correction(config.beta2, step)))),
        beta1_(static_cast<float>(config.beta1)),
        beta2_(static_cast<float>(config.beta2)),
        fresh1_(static_cast<float>(1.0 - config.beta1)),
        fresh2_(static_cast<float>(1.0 - config.beta2)),
        eps_(static_cast<float>(config.eps)) {}

  // Takes gradient `d` into the moments of one element; returns how far its
  // parameter moves down.
  float Move(float d, float& exp_avg, float& exp_avg_sq) const {
    const float mean = exp_avg * beta1_ + d * fresh1_;
    const float square = exp_avg_sq * beta2_ + fresh2_ * d * d;
    exp_avg = mean;
    exp_avg_sq = square;
    return step_size_ * mean / (std::sqrt(square) / root_correction2_ + eps_);
  }

 private:
  static double Correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }

  float step_size_;
  float root_correction2_;
  float beta1_;
  float beta2_;
  float fresh1_;
  float fresh2_;
  float eps_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_ADAM_MOMENTS_H_
