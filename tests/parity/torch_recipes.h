// Ways to train, by us and by torch, and what torch does in each of them.
#ifndef LOCKSTEP_TESTS_PARITY_TORCH_RECIPES_H_
#define LOCKSTEP_TESTS_PARITY_TORCH_RECIPES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"
#include "worker/engine/engine.h"
#include "worker/optim/optimizer.h"

namespace lockstep {

using TorchOptimizer = std::shared_ptr<torch::optim::Optimizer>;

// One way to train, by us and by torch.
struct Recipe {
  std::string name;
  OptimizerConfig ours;
  std::function<TorchOptimizer(torch::nn::Module&)> theirs;
  double max_grad_norm = 0;
  double loss_scale = 1;
  int halve_lr_every = 0;  // steps; 0: never

  // Of step `step`, from 0.
  double LearningRate(int step) const {
    double lr = std::visit([](const auto& c) { return c.lr; }, ours);
    if (halve_lr_every == 0) return lr;
    // Torch's C++ StepLR counts from its first call, which comes behind step 0.
    for (int halvings = (step - 1) / halve_lr_every; halvings > 0; --halvings) lr *= 0.5;
    return lr;
  }
};

template <typename Optimizer, typename Options>
auto Theirs(const Options& options) {
  return [options](torch::nn::Module& module) -> TorchOptimizer {
    return std::make_shared<Optimizer>(module.parameters(), options);
  };
}

// The groups of `kGroups` as torch has them: three lists of parameters.
inline const std::vector<ParameterGroup> kGroups = {
    {.pattern = "**bias", .weight_decay = 0},
    {.pattern = "re:conv_weight|0\\.weight", .lr_scale = 0.5, .weight_decay = 0.3}};

template <typename Optimizer, typename Options>
auto TheirsInGroups(const Options& options) {
  return [options](torch::nn::Module& module) -> TorchOptimizer {
    std::vector<at::Tensor> biases, first, others;
    for (const auto& parameter : module.named_parameters()) {
      const std::string& name = parameter.key();
      const bool is_bias = name.ends_with("bias");
      const bool is_first = name == "conv_weight" || name == "0.weight";
      (is_bias ? biases : is_first ? first : others).push_back(parameter.value());
    }
    EXPECT_FALSE(biases.empty() || first.empty() || others.empty());
    auto optimizer = std::make_shared<Optimizer>(
        std::vector<torch::optim::OptimizerParamGroup>{{biases}, {first}, {others}}, options);
    // Afterwards: given with the group, what equals the options' default counts as not given.
    const auto of_group = [&](int i) -> Options& {
      return static_cast<Options&>(optimizer->param_groups()[i].options());
    };
    of_group(0).weight_decay(0);
    of_group(1).weight_decay(0.3).lr(options.lr() * 0.5);
    return optimizer;
  };
}

// `max_grad_norm`: of those that clip an SGD or AdamW.
inline std::vector<Recipe> Recipes(double max_grad_norm) {
  using torch::optim::AdagradOptions;
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  const auto momentum = Theirs<torch::optim::SGD>(
      SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  const auto adamw = Theirs<torch::optim::AdamW>(AdamWOptions(1e-2).weight_decay(0.1));
  const OptimizerConfig our_momentum =
      lockstep::Sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3};
  const OptimizerConfig our_adamw = lockstep::AdamW{.lr = 1e-2, .weight_decay = 0.1};
  return {
      {.name = "Sgd", .ours = our_momentum, .theirs = momentum},
      {.name = "Nesterov",
       .ours = lockstep::Sgd{.lr = 0.05, .momentum = 0.9, .nesterov = true},
       .theirs = Theirs<torch::optim::SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true))},
      {.name = "Adam",
       .ours = lockstep::Adam{.lr = 1e-2, .weight_decay = 1e-3},
       .theirs = Theirs<torch::optim::Adam>(AdamOptions(1e-2).weight_decay(1e-3))},
      {.name = "AdamW", .ours = our_adamw, .theirs = adamw},
      {.name = "Adagrad",
       .ours = lockstep::Adagrad{.lr = 5e-2},
       .theirs = Theirs<torch::optim::Adagrad>(AdagradOptions(5e-2))},
      {.name = "AdagradWithAllSettings",
       .ours = lockstep::Adagrad{.lr = 5e-2, .lr_decay = 0.1, .weight_decay = 1e-3,
                                 .initial_accumulator_value = 0.1, .eps = 1e-8},
       .theirs = Theirs<torch::optim::Adagrad>(AdagradOptions(5e-2).lr_decay(0.1)
                                                   .weight_decay(1e-3)
                                                   .initial_accumulator_value(0.1).eps(1e-8))},
      {.name = "ClippedSgd",
       .ours = our_momentum,
       .theirs = momentum,
       .max_grad_norm = max_grad_norm},
      {.name = "ClippedAdamW", .ours = our_adamw, .theirs = adamw, .max_grad_norm = max_grad_norm},
      {.name = "SgdByStepLr", .ours = our_momentum, .theirs = momentum, .halve_lr_every = 6},
      {.name = "AdamWByStepLr", .ours = our_adamw, .theirs = adamw, .halve_lr_every = 6},
      {.name = "SgdInGroups",
       .ours = lockstep::Sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .groups = kGroups},
       .theirs = TheirsInGroups<torch::optim::SGD>(
           SGDOptions(0.05).momentum(0.9).weight_decay(0.1))},
      {.name = "AdamWInGroups",
       .ours = lockstep::AdamW{.lr = 1e-2, .weight_decay = 0.1, .groups = kGroups},
       .theirs = TheirsInGroups<torch::optim::AdamW>(AdamWOptions(1e-2).weight_decay(0.1))},
      {.name = "AdagradWithEverything",
       .ours = lockstep::Adagrad{.lr = 5e-2, .weight_decay = 0.1, .groups = kGroups},
       .theirs = TheirsInGroups<torch::optim::Adagrad>(AdagradOptions(5e-2).weight_decay(0.1)),
       .max_grad_norm = 0.8,
       .loss_scale = 1000,
       .halve_lr_every = 6},
      {.name = "ScaledAdamW", .ours = our_adamw, .theirs = adamw, .loss_scale = 1024},
  };
}

// What torch does behind the backward passes of each step.
class TorchSteps {
 public:
  TorchSteps(const Recipe& recipe, torch::nn::Module* module)
      : max_grad_norm_(recipe.max_grad_norm),
        module_(module),
        optimizer_(recipe.theirs(*module)),
        schedule_(*optimizer_, recipe.halve_lr_every == 0 ? kNever : recipe.halve_lr_every, 0.5) {}

  void Step() {
    if (max_grad_norm_ > 0) {
      torch::nn::utils::clip_grad_norm_(module_->parameters(), max_grad_norm_);
    }
    optimizer_->step();
    schedule_.step();
    optimizer_->zero_grad();
  }

 private:
  static constexpr unsigned kNever = 1'000'000;

  const double max_grad_norm_;
  torch::nn::Module* const module_;
  const TorchOptimizer optimizer_;
  torch::optim::StepLR schedule_;
};

// The same by us, on one rank: step `step`, from 0, whose gradients are of a loss
// that was multiplied by recipe.loss_scale.
class OurSteps {
 public:
  explicit OurSteps(const Recipe& recipe) : recipe_(recipe) {}

  absl::Status Step(Engine& engine, int step, StepOptions options) {
    options.max_grad_norm = recipe_.max_grad_norm;
    options.loss_scale = recipe_.loss_scale;
    LOCKSTEP_RETURN_IF_ERROR(engine.SetLearningRate(recipe_.LearningRate(step)));
    LOCKSTEP_RETURN_IF_ERROR(engine.Step(options));
    norms_.push_back(engine.stats().last_grad_norm.value_or(0));
    return absl::OkStatus();
  }

  // A run in which all steps were clipped, or none, would show little.
  void ExpectThatSomeWereClipped() const {
    if (recipe_.max_grad_norm == 0) return;
    EXPECT_THAT(norms_, testing::Contains(testing::Gt(recipe_.max_grad_norm))) << recipe_.name;
    EXPECT_THAT(norms_, testing::Contains(testing::Lt(recipe_.max_grad_norm))) << recipe_.name;
  }

 private:
  const Recipe& recipe_;
  std::vector<double> norms_;
};

// |a - b| <= floor + tolerance * |b|, element by element.
inline void ExpectClose(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                 double tolerance, double floor, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor excess = (a[i] - b[i]).abs() - floor - tolerance * b[i].abs();
    EXPECT_LE(excess.max().item<float>(), 0) << what << ", parameter " << i;
  }
}

inline void ExpectBitEqual(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                    const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i], b[i])) << what << ", parameter " << i;
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_PARITY_TORCH_RECIPES_H_
