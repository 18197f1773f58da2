#include "worker/optim/optimizer.h"

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digits.h"
#include "common/base/status_macros.h"
#include "worker/optim/adagrad.h"
#include "worker/optim/adam.h"
#include "worker/optim/adamw.h"
#include "worker/optim/sgd.h"

namespace lockstep {
namespace {

absl::Status Refuse(absl::string_view name, double value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("the optimizer's ", name, " is ", Digits(value), "; allowed is ", allowed));
}

absl::Status CheckNotNegative(absl::string_view name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Refuse(name, value, "a finite number of 0 or more");
}

absl::Status CheckBeta(absl::string_view name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Refuse(name, value, "0 or more and less than 1");
}

absl::Status Check(const Sgd& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("momentum", config.momentum));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("weight_decay", config.weight_decay));
  if (!std::isfinite(config.dampening)) {
    return Refuse("dampening", config.dampening, "a finite number");
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the optimizer's nesterov is true with momentum ", Digits(config.momentum),
        " and dampening ", Digits(config.dampening),
        "; allowed is momentum above 0 and dampening 0"));
  }
  return absl::OkStatus();
}

absl::Status Check(const Adagrad& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr_decay", config.lr_decay));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("weight_decay", config.weight_decay));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNotNegative("initial_accumulator_value", config.initial_accumulator_value));
  return CheckNotNegative("eps", config.eps);
}

template <typename AdamLike>
absl::Status Check(const AdamLike& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", config.lr));
  LOCKSTEP_RETURN_IF_ERROR(CheckBeta("beta1", config.beta1));
  LOCKSTEP_RETURN_IF_ERROR(CheckBeta("beta2", config.beta2));
  LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("eps", config.eps));
  return CheckNotNegative("weight_decay", config.weight_decay);
}

std::string Text(const Sgd& config) {
  return absl::StrCat("SGD(lr=", Digits(config.lr), ", momentum=", Digits(config.momentum),
                      ", dampening=", Digits(config.dampening),
                      ", weight_decay=", Digits(config.weight_decay),
                      ", nesterov=", config.nesterov ? "true" : "false", ")");
}

template <typename AdamLike>
std::string AdamText(absl::string_view name, const AdamLike& config) {
  return absl::StrCat(name, "(lr=", Digits(config.lr), ", beta1=", Digits(config.beta1),
                      ", beta2=", Digits(config.beta2), ", eps=", Digits(config.eps),
                      ", weight_decay=", Digits(config.weight_decay), ")");
}
std::string Text(const Adam& config) { return AdamText("Adam", config); }
std::string Text(const AdamW& config) { return AdamText("AdamW", config); }

std::string Text(const Adagrad& config) {
  return absl::StrCat("Adagrad(lr=", Digits(config.lr), ", lr_decay=", Digits(config.lr_decay),
                      ", weight_decay=", Digits(config.weight_decay),
                      ", initial_accumulator_value=", Digits(config.initial_accumulator_value),
                      ", eps=", Digits(config.eps), ")");
}

// What a kernel keeps between steps: up to two numbers per element.
class SgdState {
 public:
  SgdState(const Sgd& config, std::int64_t elements)
      : momentum_(config.momentum == 0 ? 0 : elements) {}

  void Step(const Sgd& config, std::int64_t step, std::span<const float> grad, float grad_scale,
            std::span<float> param) {
    const MomentumState state = step == 1 ? MomentumState::kNew : MomentumState::kHeld;
    SgdStep(config, state, grad, grad_scale, momentum_, param);
  }
  std::size_t floats() const { return momentum_.size(); }

 private:
  std::vector<float> momentum_;
};

template <typename AdamLike>
class MomentsState {
 public:
  MomentsState(const AdamLike&, std::int64_t elements) : exp_avg_(elements), exp_avg_sq_(elements) {}

  void Step(const AdamLike& config, std::int64_t step, std::span<const float> grad,
            float grad_scale, std::span<float> param) {
    Kernel(config, step, grad, grad_scale, exp_avg_, exp_avg_sq_, param);
  }
  std::size_t floats() const { return exp_avg_.size() + exp_avg_sq_.size(); }

 private:
  static constexpr auto Kernel = [] {
    if constexpr (std::is_same_v<AdamLike, Adam>) {
      return &AdamStep;
    } else {
      return &AdamWStep;
    }
  }();

  std::vector<float> exp_avg_;
  std::vector<float> exp_avg_sq_;
};

class AdagradState {
 public:
  AdagradState(const Adagrad& config, std::int64_t elements)
      : sum_(elements, static_cast<float>(config.initial_accumulator_value)) {}

  void Step(const Adagrad& config, std::int64_t step, std::span<const float> grad,
            float grad_scale, std::span<float> param) {
    AdagradStep(config, step, grad, grad_scale, sum_, param);
  }
  std::size_t floats() const { return sum_.size(); }

 private:
  std::vector<float> sum_;
};

template <typename Config, typename State>
class ShardOptimizerOf final : public ShardOptimizer {
 public:
  ShardOptimizerOf(const Config& config, std::int64_t elements)
      : config_(config), elements_(elements), state_(config, elements) {}

  absl::Status Step(std::span<const float> grad, float grad_scale,
                    std::span<float> param) override {
    const auto expected = static_cast<std::size_t>(elements_);
    if (grad.size() != expected || param.size() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the step got ", grad.size(), " gradient and ", param.size(),
          " parameter elements; this shard has ", elements_));
    }
    ++step_;
    state_.Step(config_, step_, grad, grad_scale, param);
    return absl::OkStatus();
  }

  absl::Status SetLearningRate(double lr) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckNotNegative("lr", lr));
    config_.lr = lr;
    return absl::OkStatus();
  }

  double learning_rate() const override { return config_.lr; }
  std::int64_t elements() const override { return elements_; }
  std::int64_t state_bytes() const override {
    return static_cast<std::int64_t>(state_.floats() * sizeof(float));
  }

 private:
  Config config_;
  const std::int64_t elements_;
  std::int64_t step_ = 0;
  State state_;
};

template <typename State, typename Config>
std::unique_ptr<ShardOptimizer> MakeOf(const Config& config, std::int64_t elements) {
  return std::make_unique<ShardOptimizerOf<Config, State>>(config, elements);
}
std::unique_ptr<ShardOptimizer> Make(const Sgd& config, std::int64_t elements) {
  return MakeOf<SgdState>(config, elements);
}
std::unique_ptr<ShardOptimizer> Make(const Adagrad& config, std::int64_t elements) {
  return MakeOf<AdagradState>(config, elements);
}
template <typename AdamLike>
std::unique_ptr<ShardOptimizer> Make(const AdamLike& config, std::int64_t elements) {
  return MakeOf<MomentsState<AdamLike>>(config, elements);
}

}  // namespace

absl::Status Validate(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return Check(c); }, config);
}

std::string Describe(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return Text(c); }, config);
}

absl::StatusOr<std::unique_ptr<ShardOptimizer>> ShardOptimizer::Create(
    const OptimizerConfig& config, std::int64_t elements) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(config));
  if (elements < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shard of ", elements, " elements; allowed is 0 or more"));
  }
  return std::visit([&](const auto& c) { return Make(c, elements); }, config);
}

}  // namespace lockstep
