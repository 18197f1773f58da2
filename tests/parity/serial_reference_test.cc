// The serial reference against torch::optim: float32 masters that torch steps with the
// averaged gradients, and clips, give its parameters.
#include "tests/parity/serial_reference.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/recipes.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

using TorchOptimizer = std::unique_ptr<torch::optim::Optimizer>;
using Tensors = std::vector<at::Tensor>;

TorchOptimizer TheirsOf(const Sgd& c, const Tensors& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(c.lr)
                                                 .momentum(c.momentum)
                                                 .dampening(c.dampening)
                                                 .weight_decay(c.weight_decay)
                                                 .nesterov(c.nesterov));
}
TorchOptimizer TheirsOf(const Adam& c, const Tensors& parameters) {
  return std::make_unique<torch::optim::Adam>(
      parameters,
      torch::optim::AdamOptions(c.lr).betas({c.beta1, c.beta2}).eps(c.eps).weight_decay(
          c.weight_decay));
}
TorchOptimizer TheirsOf(const AdamW& c, const Tensors& parameters) {
  return std::make_unique<torch::optim::AdamW>(
      parameters,
      torch::optim::AdamWOptions(c.lr).betas({c.beta1, c.beta2}).eps(c.eps).weight_decay(
          c.weight_decay));
}
TorchOptimizer TheirsOf(const Adagrad& c, const Tensors& parameters) {
  return std::make_unique<torch::optim::Adagrad>(
      parameters, torch::optim::AdagradOptions(c.lr)
                      .lr_decay(c.lr_decay)
                      .weight_decay(c.weight_decay)
                      .initial_accumulator_value(c.initial_accumulator_value)
                      .eps(c.eps));
}

constexpr int kSteps = 20;
constexpr int kRanks = 3;
constexpr double kMaxGradNorm = 1.5;

TEST(SerialReference, IsTorchOptimOnFloatMasters) {
  for (const NamedOptimizer& recipe : AllOptimizers()) {
    for (const double max_grad_norm : {0.0, kMaxGradNorm}) {
      torch::manual_seed(3);
      const Tensors parameters = {torch::randn({7, 9}), torch::randn({41}).to(at::kBFloat16),
                                  torch::randn({13}).to(at::kHalf)};
      SerialReference ours(recipe.config, parameters, {-1, -1, -1});
      Tensors masters;
      for (const at::Tensor& parameter : parameters) {
        masters.push_back(parameter.to(at::kFloat).clone().requires_grad_());
      }
      const TorchOptimizer theirs =
          std::visit([&](const auto& c) { return TheirsOf(c, masters); }, recipe.config);
      for (int step = 0; step < kSteps; ++step) {
        std::vector<RankStep> ranks(kRanks);
        std::int64_t samples = 0;
        for (int rank = 0; rank < kRanks; ++rank) {
          ranks[rank].options = {.samples = rank + 1, .max_grad_norm = max_grad_norm};
          samples += rank + 1;
          for (const at::Tensor& parameter : parameters) {
            ranks[rank].gradients.push_back((torch::randn(parameter.sizes()) * (step % 3 + 1) / 5)
                                                .to(parameter.scalar_type()));
          }
        }
        for (std::size_t i = 0; i < masters.size(); ++i) {
          at::Tensor sum = torch::zeros_like(masters[i]);
          for (const RankStep& rank : ranks) {
            sum = sum + rank.gradients[i].to(at::kFloat) * rank.options.samples;
          }
          masters[i].mutable_grad() = sum / samples;
        }
        if (max_grad_norm > 0) torch::nn::utils::clip_grad_norm_(masters, max_grad_norm);
        theirs->step();
        EXPECT_TRUE(ours.Step(ranks).has_value());
      }
      for (std::size_t i = 0; i < masters.size(); ++i) {
        const at::Tensor difference = (ours.masters()[i] - masters[i].detach()).abs();
        EXPECT_LE((difference - 1e-7 - 1e-5 * masters[i].detach().abs()).max().item<float>(), 0)
            << recipe.name << ", parameter " << i << ", clipped to " << max_grad_norm;
        EXPECT_TRUE(torch::equal(ours.parameters()[i],
                                 ours.masters()[i].to(parameters[i].scalar_type())));
      }
    }
  }
}

TEST(SerialReference, WithoutMastersSmallStepsOfAShortTypeWouldVanish) {
  SerialReference reference(Sgd{.lr = 1}, {torch::ones({1}).to(at::kBFloat16)}, {-1});
  const at::Tensor eighth_of_an_ulp = torch::full({1}, -0x1p-10).to(at::kBFloat16);
  for (int step = 0; step < 8; ++step) reference.Step({{{}, {eighth_of_an_ulp}}});
  EXPECT_EQ(reference.parameters()[0].item<float>(), 1 + 0x1p-7);
}

TEST(SerialReference, AWrittenParameterCountsOneThatEqualsItsMasterDoesNot) {
  SerialReference reference(Sgd{.lr = 1}, {torch::ones({2}).to(at::kBFloat16)}, {-1});
  const at::Tensor small = torch::full({2}, -0x1p-10).to(at::kBFloat16);
  reference.Step({{{}, {small}}});
  at::Tensor written = reference.parameters()[0].clone();
  written[1] = 2;
  reference.Write(0, written);
  reference.Step({{{}, {small}}});
  EXPECT_EQ(reference.masters()[0][0].item<float>(), 1 + 0x1p-9);
  EXPECT_EQ(reference.masters()[0][1].item<float>(), 2 + 0x1p-10);
}

TEST(SerialReference, RefusesWhatIsNotFiniteUnlessItsRankHasNoSamples) {
  SerialReference reference(Sgd{.lr = 1}, {torch::ones({2})}, {-1});
  const at::Tensor infinite = torch::full({2}, INFINITY);
  EXPECT_FALSE(reference.Step({{{}, {infinite}}}).has_value());
  EXPECT_FALSE(reference.Step({{{.samples = 0}, {torch::ones({2})}}}).has_value());
  EXPECT_TRUE(reference.Step({{{.samples = 0}, {infinite}}, {{}, {torch::ones({2})}}}).has_value());
}

}  // namespace
}  // namespace lockstep
