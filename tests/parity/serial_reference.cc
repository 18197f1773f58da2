#include "tests/parity/serial_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "ATen/ATen.h"

namespace lockstep {
namespace {

using States = std::vector<at::Tensor>;

// LibTorch's own of float32 is not always the nearest.
at::Tensor Root(const at::Tensor& x) { return x.to(at::kDouble).sqrt().to(at::kFloat); }

template <typename Config>
at::Tensor WithDecay(const Config& c, const at::Tensor& p, const at::Tensor& g) {
  return c.weight_decay == 0 ? g : g + p * c.weight_decay;
}

// The parameter after step number `step`, from 1, with gradient `g`.
at::Tensor Updated(const Sgd& c, std::int64_t step, const at::Tensor& p, const at::Tensor& g,
                   States& states) {
  const at::Tensor d = WithDecay(c, p, g);
  if (c.momentum == 0) return p - d * c.lr;
  at::Tensor& velocity = states[0];
  velocity = step == 1 ? d : velocity * c.momentum + d * (1 - c.dampening);
  return p - (c.nesterov ? d + velocity * c.momentum : velocity) * c.lr;
}

template <typename Config>
at::Tensor AdamMove(const Config& c, std::int64_t step, const at::Tensor& d, States& states) {
  const double correction1 = 1 - std::pow(c.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(c.beta2, static_cast<double>(step));
  states[0] = states[0] * c.beta1 + d * (1 - c.beta1);
  states[1] = states[1] * c.beta2 + d * (1 - c.beta2) * d;
  const at::Tensor root = Root(states[1]) / std::sqrt(correction2) + c.eps;
  return states[0] * (c.lr / correction1) / root;
}

at::Tensor Updated(const Adam& c, std::int64_t step, const at::Tensor& p, const at::Tensor& g,
                   States& states) {
  return p - AdamMove(c, step, WithDecay(c, p, g), states);
}

at::Tensor Updated(const AdamW& c, std::int64_t step, const at::Tensor& p, const at::Tensor& g,
                   States& states) {
  return p * (1 - c.lr * c.weight_decay) - AdamMove(c, step, g, states);
}

at::Tensor Updated(const Adagrad& c, std::int64_t step, const at::Tensor& p, const at::Tensor& g,
                   States& states) {
  const at::Tensor d = WithDecay(c, p, g);
  if (step == 1) states[0].fill_(c.initial_accumulator_value);
  states[0] = states[0] + d * d;
  const double lr = c.lr / (1 + static_cast<double>(step - 1) * c.lr_decay);
  return p - d * lr / (Root(states[0]) + c.eps);
}

template <typename Config>
Config OfGroup(Config c, int group) {
  if (group < 0) return c;
  c.weight_decay = c.groups[group].weight_decay.value_or(c.weight_decay);
  c.lr *= c.groups[group].lr_scale;
  return c;
}

float WeightOf(const StepOptions& options) {
  if (options.samples == 0) return 0;
  return options.loss == LossReduction::kSum ? 1 : static_cast<float>(options.samples);
}

at::Tensor SumOverRanks(const std::vector<RankStep>& ranks, std::size_t parameter,
                        const at::Tensor& like) {
  at::Tensor sum = at::zeros_like(like);
  for (const RankStep& rank : ranks) {
    const float weight = WeightOf(rank.options);
    const at::Tensor& gradient = rank.gradients[parameter];
    if (weight == 0 || !gradient.defined()) continue;
    sum = sum + gradient.to(at::kFloat) * weight;
  }
  return sum;
}

}  // namespace

SerialReference::SerialReference(const OptimizerConfig& optimizer,
                                 const std::vector<at::Tensor>& parameters,
                                 std::vector<int> groups)
    : optimizer_(optimizer), groups_(std::move(groups)) {
  for (const at::Tensor& parameter : parameters) {
    parameters_.push_back(parameter.detach().clone());
    masters_.push_back(parameters_.back().to(at::kFloat));
    states_.push_back({at::zeros_like(masters_.back()), at::zeros_like(masters_.back())});
  }
}

std::optional<double> SerialReference::Step(const std::vector<RankStep>& ranks) {
  const StepOptions& options = ranks[0].options;
  std::int64_t samples = 0;
  for (const RankStep& rank : ranks) samples += rank.options.samples;
  if (samples == 0) return std::nullopt;
  States sums;
  double squared_norm = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    sums.push_back(SumOverRanks(ranks, i, masters_[i]));
    if (!sums[i].isfinite().all().item<bool>()) return std::nullopt;
    squared_norm += sums[i].to(at::kDouble).square().sum().item<double>();
  }
  const double averaging = 1.0 / (static_cast<double>(samples) * options.loss_scale);
  const double norm = std::sqrt(squared_norm) * averaging;
  const double clipping =
      options.max_grad_norm == 0 ? 1 : std::min(1.0, options.max_grad_norm / (norm + 1e-6));
  ++step_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::ScalarType type = parameters_[i].scalar_type();
    const at::Tensor is_own = masters_[i].to(type) == parameters_[i];
    const at::Tensor before = at::where(is_own, masters_[i], parameters_[i].to(at::kFloat));
    const at::Tensor gradient = sums[i] * (averaging * clipping);
    masters_[i] = std::visit(
        [&](const auto& c) {
          return Updated(OfGroup(c, groups_[i]), step_, before, gradient, states_[i]);
        },
        optimizer_);
    parameters_[i] = masters_[i].to(type, /*non_blocking=*/false, /*copy=*/true);
  }
  return norm;
}

void SerialReference::SetLearningRate(double lr) {
  std::visit([&](auto& c) { c.lr = lr; }, optimizer_);
}

void SerialReference::Write(std::size_t parameter, const at::Tensor& values) {
  parameters_[parameter].copy_(values);
}

}  // namespace lockstep
