// Sharded training against torch::optim on one rank.
//
// The exact tests use a loss that is linear in the parameters, with per-sample
// gradients of few bits: every sum is exact, however the samples are spread, so
// that results must be bit-equal for any number of ranks and any transport.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
constexpr double kNetMaxGradNorm = 1.2;

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
const std::vector<ParameterGroup> kGroups = {
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
std::vector<Recipe> Recipes(double max_grad_norm) {
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
void ExpectClose(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                 double tolerance, double floor, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor excess = (a[i] - b[i]).abs() - floor - tolerance * b[i].abs();
    EXPECT_LE(excess.max().item<float>(), 0) << what << ", parameter " << i;
  }
}

void ExpectBitEqual(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                    const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i], b[i])) << what << ", parameter " << i;
  }
}

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
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              const at::Tensor gradient =
                  SampleGradient(step, sample, i, parameters[i].sizes());
              ((parameters[i] * gradient).sum() * recipe.loss_scale).backward();
            }
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

torch::nn::Sequential NetWithoutBatchNorm() {
  torch::manual_seed(6);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)),
                               torch::nn::Tanh(), torch::nn::Flatten(),
                               torch::nn::Linear(4 * 6 * 6, 5));
}

at::Tensor LossOf(torch::nn::Sequential& net, int step, std::int64_t begin, std::int64_t end) {
  Prng prng(static_cast<std::uint64_t>(step));
  at::Tensor x = at::empty({kBatch, 1, 6, 6});
  at::Tensor y = at::empty({kBatch}, at::kLong);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.mutable_data_ptr<float>()[i] = static_cast<float>(prng.Unit() * 2 - 1);
  }
  for (int i = 0; i < kBatch; ++i) {
    y.mutable_data_ptr<std::int64_t>()[i] = prng.Between(0, 4);
  }
  return torch::nn::functional::cross_entropy(net->forward(x.slice(0, begin, end)),
                                              y.slice(0, begin, end));
}

// The loss is a mean over each rank's samples, and ranks have unequal parts.
TEST(Net, RanksTogetherTrainAsTorchDoesOnTheWholeBatch) {
  for (const Recipe& recipe : Recipes(kNetMaxGradNorm)) {
    torch::nn::Sequential reference = NetWithoutBatchNorm();
    TorchSteps theirs(recipe, reference.get());
    for (int step = 0; step < kSteps; ++step) {
      LossOf(reference, step, 0, kBatch).backward();
      theirs.Step();
    }
    for (int world_size = 1; world_size <= 4; ++world_size) {
      std::vector<torch::nn::Sequential> nets;
      std::vector<std::shared_ptr<torch::nn::Module>> modules;
      for (int rank = 0; rank < world_size; ++rank) {
        nets.push_back(NetWithoutBatchNorm());
        modules.push_back(nets.back().ptr());
      }
      LOCKSTEP_ASSERT_OK(TrainTogether(
          {.optimizer = recipe.ours, .transports = std::make_shared<InProcessFactory>()},
          modules, [&](int rank, Engine& engine) -> absl::Status {
            // Of 12 samples: the last rank has what the others leave.
            const std::int64_t part = kBatch / world_size - (world_size > 1 ? 1 : 0);
            const std::int64_t begin = rank * part;
            const std::int64_t end = rank + 1 == world_size ? kBatch : begin + part;
            OurSteps steps(recipe);
            for (int step = 0; step < kSteps; ++step) {
              LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
              (LossOf(nets[rank], step, begin, end) * recipe.loss_scale).backward();
              LOCKSTEP_RETURN_IF_ERROR(steps.Step(engine, step, {.samples = end - begin}));
            }
            steps.ExpectThatSomeWereClipped();
            return absl::OkStatus();
          }));
      ExpectClose(nets[0]->parameters(), reference->parameters(), 1e-5, 1e-7,
                  recipe.name + " on " + std::to_string(world_size) + " ranks");
    }
  }
}

}  // namespace
}  // namespace lockstep
