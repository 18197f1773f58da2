#include "worker/torch/torch_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "ATen/ops/_fused_adagrad.h"
#include "ATen/ops/_fused_adam.h"
#include "ATen/ops/_fused_adamw.h"
#include "ATen/ops/_fused_sgd.h"
#include "ATen/ops/where.h"
#include "ATen/ops/zeros.h"
#include "common/base/status_macros.h"
#include "worker/optim/grouped_settings.h"

namespace lockstep {
namespace {

// Flat tensors of equal size, all float.
struct Range {
  at::Tensor params;
  at::Tensor gradients;
  std::vector<at::Tensor> states;
};

struct StepNumber {
  std::int64_t value = 0;   // from 1
  at::Tensor on_device;     // the same, as one float
};

void StepBy(const Sgd& config, const StepNumber& step, const Range& range) {
  at::_fused_sgd_(range.params, range.gradients, range.states, config.weight_decay,
                  config.momentum, config.lr, config.dampening, config.nesterov,
                  /*maximize=*/false, /*is_first_step=*/step.value == 1);
}
void StepBy(const Adam& config, const StepNumber& step, const Range& range) {
  at::_fused_adam_(range.params, range.gradients, range.states[0], range.states[1],
                   /*max_exp_avg_sqs=*/{}, step.on_device, config.lr, config.beta1, config.beta2,
                   config.weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false);
}
void StepBy(const AdamW& config, const StepNumber& step, const Range& range) {
  at::_fused_adamw_(range.params, range.gradients, range.states[0], range.states[1],
                    /*max_exp_avg_sqs=*/{}, step.on_device, config.lr, config.beta1, config.beta2,
                    config.weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false);
}
void StepBy(const Adagrad& config, const StepNumber& step, const Range& range) {
  at::_fused_adagrad_(range.params, range.gradients, range.states[0], step.on_device, config.lr,
                      config.lr_decay, config.weight_decay, config.eps, /*maximize=*/false);
}

template <typename Config>
class TorchOptimizer final : public ShardOptimizer {
 public:
  static absl::StatusOr<std::unique_ptr<ShardOptimizer>> Make(
      std::shared_ptr<const TorchDevice> device, const Config& config,
      std::vector<GroupRange> ranges, std::int64_t short_begin) {
    std::unique_ptr<TorchOptimizer> made(
        new TorchOptimizer(std::move(device), config, std::move(ranges), short_begin));
    LOCKSTEP_RETURN_IF_ERROR(made->AllocateStates(config));
    return made;
  }

  void BeginStep(float grad_scale) override {
    ++step_.value;
    grad_scale_ = grad_scale;
    status_ = device_->Run("beginning a step", [&] {
      step_.on_device.fill_(static_cast<double>(step_.value));
      return absl::OkStatus();
    });
  }

  void Update(std::int64_t begin, std::span<const float> gradients, DType dtype,
              std::byte* params) override {
    if (!status_.ok()) return;
    status_ = device_->Run("updating parameters", [&] {
      const auto end = begin + static_cast<std::int64_t>(gradients.size());
      grouped_.ForEachPart(
          begin, end, [&](std::size_t settings, std::int64_t part_begin, std::int64_t part_end) {
            for (std::int64_t at = part_begin; at < part_end; at += kTileElements) {
              UpdateTile(grouped_.settings()[settings], at, std::min(kTileElements, part_end - at),
                         gradients.data() + (at - begin), dtype,
                         params + (at - begin) * ElementBytes(dtype));
            }
          });
      return absl::OkStatus();
    });
  }

  absl::Status EndStep() override { return status_; }

  absl::Status SetLearningRate(double lr) override {
    LOCKSTEP_RETURN_IF_ERROR(CheckLearningRate(lr));
    grouped_.SetLearningRate(lr);
    return absl::OkStatus();
  }

  std::vector<StateSlot> state() override {
    std::vector<StateSlot> slots;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      slots.push_back({kept_[i].name, 0, SpanOf(states_[i])});
    }
    if (short_begin_ < elements()) {
      slots.push_back({std::string(kMasters), short_begin_, SpanOf(masters_)});
    }
    return slots;
  }
  std::int64_t step() const override { return step_.value; }
  void set_step(std::int64_t step) override { step_.value = step; }

  double learning_rate() const override { return grouped_.learning_rate(); }
  std::int64_t elements() const override { return grouped_.elements(); }
  std::int64_t state_bytes() const override {
    std::size_t bytes = masters_.nbytes();
    for (const at::Tensor& state : states_) bytes += state.nbytes();
    return static_cast<std::int64_t>(bytes);
  }

 private:
  TorchOptimizer(std::shared_ptr<const TorchDevice> device, const Config& config,
                 std::vector<GroupRange> ranges, std::int64_t short_begin)
      : device_(std::move(device)),
        grouped_(config, std::move(ranges)),
        short_begin_(std::min(short_begin, elements())) {}

  absl::Status AllocateStates(const Config& config) {
    kept_ = ElementStatesOf(config);
    for (const ElementState& each : kept_) {
      LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor state, device_->Zeros(elements()));
      states_.push_back(state);
      LOCKSTEP_RETURN_IF_ERROR(device_->Run("filling states", [&] {
        if (each.initial != 0) state.fill_(each.initial);
        return absl::OkStatus();
      }));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(masters_, device_->Zeros(elements() - short_begin_));
    LOCKSTEP_ASSIGN_OR_RETURN(step_.on_device, device_->Zeros(1));
    return device_->Run("making states", [&] {
      step_.on_device = step_.on_device.reshape({});
      // Steps may be put on another stream.
      device_->Wait();
      return absl::OkStatus();
    });
  }

  static std::span<float> SpanOf(const at::Tensor& tensor) {
    return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }

  void UpdateTile(const Config& settings, std::int64_t begin, std::int64_t n,
                  const float* gradients, DType dtype, std::byte* params) {
    Range range = {.gradients = device_->View(gradients, n, at::kFloat)};
    // A copy: the kernels' own scaling would write to the sums.
    if (grad_scale_ != 1) range.gradients = range.gradients.mul(grad_scale_);
    for (const at::Tensor& state : states_) range.states.push_back(state.narrow(0, begin, n));
    const at::Tensor held = device_->View(params, n, ToScalarType(dtype));
    if (dtype == DType::kFloat32) {
      range.params = held;
      return StepBy(settings, step_, range);
    }
    range.params = masters_.narrow(0, begin - short_begin_, n);
    FollowParameters(held, range.params);
    StepBy(settings, step_, range);
    at::Tensor(held).copy_(range.params);
  }

  // A parameter that is not its master rounded was written by training code, and counts.
  // Compared by bits.
  static void FollowParameters(const at::Tensor& params, at::Tensor masters) {
    const at::Tensor is_own =
        masters.to(params.scalar_type()).view(at::kShort).eq(params.view(at::kShort));
    masters.copy_(at::where(is_own, masters, params.to(at::kFloat)));
  }

  const std::shared_ptr<const TorchDevice> device_;
  GroupedSettings<Config> grouped_;
  const std::int64_t short_begin_;
  StepNumber step_;
  float grad_scale_ = 1;
  absl::Status status_;  // of the step
  std::vector<ElementState> kept_;
  std::vector<at::Tensor> states_;  // of all elements each, as kept_
  at::Tensor masters_;              // of the elements from short_begin_ on
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardOptimizer>> MakeTorchOptimizer(
    std::shared_ptr<const TorchDevice> device, const OptimizerConfig& config,
    std::vector<GroupRange> ranges, std::int64_t short_begin) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(config));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges(ranges, GroupsOf(config).size()));
  return std::visit(
      [&]<typename Config>(const Config& settings) {
        return TorchOptimizer<Config>::Make(std::move(device), settings, std::move(ranges),
                                            short_begin);
      },
      config);
}

}  // namespace lockstep
