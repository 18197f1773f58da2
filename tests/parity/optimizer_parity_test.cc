// Sharded training against torch::optim on one rank.
//
// The exact tests use a loss that is linear in the parameters, with per-sample
// gradients of few bits: every sum is exact, however the samples are spread, so
// that results must be bit-equal for any number of ranks and any transport.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/parity/torch_recipes.h"
#include "tests/parity/torch_world.h"
#include "torch/torch.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

constexpr int kSteps = 20;
constexpr int kBatch = 12;  // of all ranks together
// Passed in some steps, not in all.
constexpr double kLinearMaxGradNorm = 0.8;

// Odd sizes: shards cut through tensors and padding.
struct LinearLossImpl : torch::nn::Module {
  LinearLossImpl() {
    torch::manual_seed(5);
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{37}, {5, 3}, {1}, {2, 3, 7}}) {
      all.push_back(register_parameter(kNames[all.size()], torch::randn(shape)));
    }
  }
  static constexpr const char* kNames[] = {"conv_weight", "conv_bias", "bn_bias", "fc_weight"};
  std::vector<at::Tensor> all;
};

// The gradient of sample `sample` of step `step` by parameter `index`: multiples
// of 1/16 from -1/2 to 1/2.
at::Tensor SampleGradient(int step, int sample, int index, at::IntArrayRef shape) {
  at::Tensor gradient = at::empty(shape);
  Prng prng(static_cast<std::uint64_t>((step * kBatch + sample) * 100 + index));
  for (std::int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.mutable_data_ptr<float>()[i] = static_cast<float>(prng.Between(-8, 8)) / 16;
  }
  return gradient;
}

// The rank that has the sample; every fifth step the last rank has them all.
int RankOf(int step, int sample, int world_size) {
  return step % 5 == 4 ? world_size - 1 : sample % world_size;
}

std::vector<at::Tensor> TrainExactly(const Recipe& recipe, int world_size,
                                     std::shared_ptr<TransportFactory> transports) {
  std::vector<std::shared_ptr<LinearLossImpl>> nets;
  for (int rank = 0; rank < world_size; ++rank) nets.push_back(std::make_shared<LinearLossImpl>());
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = recipe.ours, .transports = std::move(transports)}, {nets.begin(), nets.end()},
      [&](int rank, Engine& engine) -> absl::Status {
        const std::vector<at::Tensor>& parameters = nets[rank]->all;
        OurSteps steps(recipe);
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
          std::int64_t samples = 0;
          for (int sample = 0; sample < kBatch; ++sample) {
            if (RankOf(step, sample, world_size) != rank) continue;
            ++samples;
            at::Tensor loss = at::zeros({});
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              const at::Tensor gradient =
                  SampleGradient(step, sample, i, parameters[i].sizes());
              loss = loss + (parameters[i] * gradient).sum() * recipe.loss_scale;
            }
            loss.backward();
          }
          LOCKSTEP_RETURN_IF_ERROR(
              steps.Step(engine, step, {.samples = samples, .loss = LossReduction::kSum}));
        }
        steps.ExpectThatSomeWereClipped();
        return absl::OkStatus();
      }));
  for (const auto& net : nets) ExpectBitEqual(net->all, nets[0]->all, "between ranks");
  return nets[0]->all;
}

std::vector<at::Tensor> TrainExactlyByTorch(const Recipe& recipe) {
  LinearLossImpl net;
  TorchSteps steps(recipe, &net);
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < net.all.size(); ++i) {
      at::Tensor sum = at::zeros(net.all[i].sizes());
      for (int sample = 0; sample < kBatch; ++sample) {
        sum += SampleGradient(step, sample, i, net.all[i].sizes());
      }
      net.all[i].mutable_grad() = sum * static_cast<float>(1.0 / kBatch);
    }
    steps.Step();
  }
  return net.all;
}

TEST(Exact, ParametersAreBitEqualForAnyNumberOfRanksOnAnyTransport) {
  for (const Recipe& recipe : Recipes(kLinearMaxGradNorm)) {
    const std::vector<at::Tensor> one =
        TrainExactly(recipe, 1, std::make_shared<InProcessFactory>());
    for (int world_size = 1; world_size <= 4; ++world_size) {
      const std::string what = recipe.name + " on " + std::to_string(world_size) + " ranks";
      ExpectBitEqual(TrainExactly(recipe, world_size, std::make_shared<InProcessFactory>()), one,
                     what + ", in-process");
      ExpectBitEqual(TrainExactly(recipe, world_size, std::make_shared<ShmFactory>()), one,
                     what + ", shared memory");
    }
    ExpectClose(one, TrainExactlyByTorch(recipe), 1e-5, 1e-7, recipe.name + " by torch");
  }
}

struct TypedShape {
  std::vector<std::int64_t> shape;
  at::ScalarType type;
};

// All types that are trained, none of them in one piece.
const std::vector<TypedShape> kMixed = {{{37}, at::kFloat},
                                        {{5, 3}, at::kBFloat16},
                                        {{50}, at::kHalf},
                                        {{1}, at::kFloat},
                                        {{2, 3, 7}, at::kBFloat16}};

// Parameters of those types, or float32 of the same values.
struct TypedLossImpl : torch::nn::Module {
  TypedLossImpl(const std::vector<TypedShape>& typed, bool as_floats) {
    torch::manual_seed(5);
    for (const auto& [shape, type] : typed) {
      const at::Tensor value = torch::randn(shape).to(type);
      all.push_back(
          register_parameter(kNames[all.size()], as_floats ? value.to(at::kFloat) : value));
    }
  }
  static constexpr const char* kNames[] = {"conv_weight", "conv_bias", "bn_bias", "fc_weight",
                                           "head_weight"};
  std::vector<at::Tensor> all;
};

// On four ranks only one of them has a gradient of a parameter, but for the steps in
// which the last has all samples.
bool Reaches(int sample, std::size_t parameter) {
  return static_cast<std::size_t>(sample % 4) == parameter % 4;
}

std::vector<at::Tensor> TrainTyped(const Recipe& recipe, const std::vector<TypedShape>& typed,
                                   bool as_floats, int world_size,
                                   std::shared_ptr<TransportFactory> transports) {
  std::vector<std::shared_ptr<TypedLossImpl>> nets;
  for (int rank = 0; rank < world_size; ++rank) {
    nets.push_back(std::make_shared<TypedLossImpl>(typed, as_floats));
  }
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = recipe.ours, .transports = std::move(transports)}, {nets.begin(), nets.end()},
      [&](int rank, Engine& engine) -> absl::Status {
        OurSteps steps(recipe);
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
          std::int64_t samples = 0;
          for (int sample = 0; sample < kBatch; ++sample) {
            if (RankOf(step, sample, world_size) != rank) continue;
            ++samples;
            for (std::size_t i = 0; i < typed.size(); ++i) {
              if (!Reaches(sample, i)) continue;
              const at::Tensor& parameter = nets[rank]->all[i];
              const at::Tensor gradient =
                  SampleGradient(step, sample, i, typed[i].shape).to(parameter.scalar_type());
              ((parameter * gradient).sum() * recipe.loss_scale).backward();
            }
          }
          LOCKSTEP_RETURN_IF_ERROR(
              steps.Step(engine, step, {.samples = samples, .loss = LossReduction::kSum}));
        }
        if (recipe.name.starts_with("Clipped")) steps.ExpectThatSomeWereClipped();
        return absl::OkStatus();
      }));
  for (const auto& net : nets) ExpectBitEqual(net->all, nets[0]->all, "between ranks");
  return nets[0]->all;
}

// Short types are trained on masters in float, so they are what float32 parameters of
// the same values come to, rounded.
void ExpectTypedAreRoundedFloats(const Recipe& recipe, const std::vector<TypedShape>& typed) {
  std::vector<at::Tensor> expected =
      TrainTyped(recipe, typed, /*as_floats=*/true, 1, std::make_shared<InProcessFactory>());
  for (std::size_t i = 0; i < typed.size(); ++i) expected[i] = expected[i].to(typed[i].type);
  for (int world_size = 1; world_size <= 4; ++world_size) {
    const std::string what = recipe.name + " on " + std::to_string(world_size) + " ranks";
    ExpectBitEqual(TrainTyped(recipe, typed, /*as_floats=*/false, world_size,
                              std::make_shared<InProcessFactory>()),
                   expected, what + ", in-process");
    ExpectBitEqual(TrainTyped(recipe, typed, /*as_floats=*/false, world_size,
                              std::make_shared<ShmFactory>()),
                   expected, what + ", shared memory");
  }
}

TEST(Exact, ParametersOfAllTypesTrainWhereSomeRanksHaveNoGradientOfThem) {
  for (const Recipe& recipe : Recipes(/*max_grad_norm=*/0.53)) {
    // In short types gradients times that are not exact.
    if (recipe.loss_scale != 1000) ExpectTypedAreRoundedFloats(recipe, kMixed);
  }
}

TEST(Exact, ATinyParameterTrainsThoughMostRanksOwnNothing) {
  const std::vector<Recipe> recipes = {
      {.name = "AdamW", .ours = lockstep::AdamW{.lr = 1e-2, .weight_decay = 0.1}},
      {.name = "Clipping", .ours = lockstep::Sgd{.lr = 0.05, .momentum = 0.9}, .max_grad_norm = 0.05}};
  for (const Recipe& recipe : recipes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      ExpectTypedAreRoundedFloats(recipe, {{{1}, type}});
    }
    ExpectTypedAreRoundedFloats(recipe, {{{0}, at::kHalf}, {{1}, at::kHalf}, {{3}, at::kFloat}});
  }
}

TEST(Exact, APowerOfTwoAsTheScaleOfTheLossChangesNoBit) {
  Recipe recipe = {.name = "ClippedAdamW",
                   .ours = lockstep::AdamW{.lr = 1e-2, .weight_decay = 0.1},
                   .max_grad_norm = kLinearMaxGradNorm};
  const std::vector<at::Tensor> unscaled =
      TrainExactly(recipe, 2, std::make_shared<InProcessFactory>());
  recipe.loss_scale = 65536;
  ExpectBitEqual(TrainExactly(recipe, 2, std::make_shared<InProcessFactory>()), unscaled,
                 "scaled");
}

}  // namespace
}  // namespace lockstep
