// Each optimizer on parameters of each type, and of several at once, against the serial
// reference, to the bit.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"

namespace lockstep {
namespace {

// What no test may miss: that some norms are above the bound and some below.
constexpr double kMaxGradNorm = 0.5;

RankStep ClippedExactPart(const Scenario& scenario, const Turn& turn) {
  RankStep part = ExactPart(scenario, turn);
  part.options.max_grad_norm = kMaxGradNorm;
  return part;
}

TEST(Types, EveryOptimizerOnEveryTypeEqualsTheReference) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const NamedParameters& types : AllTypes()) {
      ExpectParity({.parameters = types.parameters,
                    .optimizer = optimizer.config,
                    .part = RoundingPart},
                   optimizer.name + " on " + types.name);
    }
  }
}

TEST(Types, WhereSumsAreExactAnyNumberOfRanksGivesTheSameBits) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const NamedParameters& types : AllTypes()) {
      const Scenario scenario = {
          .parameters = types.parameters, .optimizer = optimizer.config, .part = ExactPart};
      const Outcome reference = TrainSerially(scenario, 1);
      for (int world_size = 1; world_size <= 4; ++world_size) {
        ExpectEqual(TrainInLockstep(scenario, world_size, Over::kInProcess),
                    reference, optimizer.name + " on " + types.name);
      }
    }
  }
}

TEST(Clipping, IsByTheNormOverAllTypes) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const NamedParameters& types : AllTypes()) {
      if (optimizer.name != "AdamW" && types.name != "mixed") continue;
      Scenario scenario = {.parameters = types.parameters,
                           .optimizer = optimizer.config,
                           .part = [](const Scenario& scenario, const Turn& turn) {
                             RankStep part = ClippedExactPart(scenario, turn);
                             // Some steps are below the bound.
                             if (turn.step % 3 == 0) {
                               for (at::Tensor& gradient : part.gradients) {
                                 if (gradient.defined()) gradient = gradient / 16;
                               }
                             }
                             return part;
                           }};
      const Outcome reference = TrainSerially(scenario, 1);
      EXPECT_THAT(reference.norms, testing::Contains(testing::Gt(kMaxGradNorm)));
      EXPECT_THAT(reference.norms, testing::Contains(testing::Lt(kMaxGradNorm)));
      for (int world_size = 1; world_size <= 4; ++world_size) {
        for (const Over transport : {Over::kInProcess, Over::kShm}) {
          ExpectEqual(TrainInLockstep(scenario, world_size, transport), reference,
                      optimizer.name + " on " + types.name + " " + NameOf(transport));
        }
      }
    }
  }
}

// The squares are added in another order than the reference's, in float64: the factor
// may be its neighbour, and with it a parameter of a short type.
TEST(Clipping, OfGradientsThatRoundIsWithinOneUlpOfShortTypesAndFourOfFloat) {
  const Scenario scenario = {.parameters = MixedTypes(),
                             .optimizer = Sgd{.lr = 0.05, .momentum = 0.9},
                             .part = [](const Scenario& scenario, const Turn& turn) {
                               RankStep part = RoundingPart(scenario, turn);
                               part.options.max_grad_norm = 2;
                               return part;
                             }};
  for (int world_size = 1; world_size <= 4; ++world_size) {
    const Outcome reference = TrainSerially(scenario, world_size);
    const Outcome outcome =
        TrainInLockstep(scenario, world_size, Over::kInProcess);
    for (std::size_t i = 0; i < reference.norms.size(); ++i) {
      EXPECT_NEAR(outcome.norms[i], reference.norms[i], 1e-12 * reference.norms[i]);
    }
    for (std::size_t i = 0; i < reference.parameters[0].size(); ++i) {
      const at::Tensor& expected = reference.parameters[0][i];
      EXPECT_LE(LargestUlpDistance(outcome.parameters[0][i], expected),
                expected.scalar_type() == at::kFloat ? 4 : 1);
    }
  }
}

TEST(Clipping, AnInfiniteBoundMeasuresTheNormAndChangesNoBit) {
  for (const NamedParameters& types : AllTypes()) {
    Scenario scenario = {.parameters = types.parameters,
                         .optimizer = AdamW{.lr = 1e-2},
                         .part = ExactPart};
    const Outcome unmeasured = TrainSerially(scenario, 3);
    scenario.part = [](const Scenario& scenario, const Turn& turn) {
      RankStep part = ExactPart(scenario, turn);
      part.options.max_grad_norm = std::numeric_limits<double>::infinity();
      return part;
    };
    const Outcome reference = TrainSerially(scenario, 3);
    EXPECT_THAT(reference.norms, testing::Each(testing::Gt(0)));
    for (const Over transport : {Over::kInProcess, Over::kShm}) {
      Outcome measured = TrainInLockstep(scenario, 3, transport);
      ExpectEqual(measured, reference, types.name);
      measured.norms = unmeasured.norms;
      ExpectEqual(measured, unmeasured, types.name);
    }
  }
}

TEST(Settings, GroupsReachAcrossTypes) {
  std::vector<TypedParameter> parameters = MixedTypes();
  for (TypedParameter& parameter : parameters) {
    if (parameter.name.ends_with("bias")) parameter.group = 0;
    if (parameter.name == "fc_weight" || parameter.name == "norm_weight") parameter.group = 1;
  }
  const std::vector<ParameterGroup> groups = {
      {.pattern = "**bias", .weight_decay = 0},
      {.pattern = "re:fc_weight|norm_weight", .lr_scale = 0.5, .weight_decay = 0.3}};
  for (NamedOptimizer optimizer : AllOptimizers()) {
    std::visit([&](auto& config) { config.groups = groups; }, optimizer.config);
    ExpectParity({.parameters = parameters,
                  .optimizer = optimizer.config,
                  .part = RoundingPart,
                  .learning_rate = [](int step) { return 0.04 / (1 + step / 3); }},
                 optimizer.name + " in groups");
  }
}

TEST(Settings, TheLearningRateChangesOnAllTypesAtOnce) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    ExpectParity({.parameters = MixedTypes(),
                  .optimizer = optimizer.config,
                  .part = RoundingPart,
                  // Not at all in one step.
                  .learning_rate = [](int step) { return step == 5 ? 0 : 0.03 * (1 + step % 3); }},
                 optimizer.name + " with changing rates");
  }
}

TEST(Settings, RunsAreBitEqualFromRunToRun) {
  const Scenario scenario = {.parameters = MixedTypes(),
                             .optimizer = AdamW{.lr = 1e-2},
                             .part = [](const Scenario& scenario, const Turn& turn) {
                               RankStep part = RoundingPart(scenario, turn);
                               part.options.max_grad_norm = 2;
                               return part;
                             }};
  for (const Over transport : {Over::kInProcess, Over::kShm}) {
    const Outcome first = TrainInLockstep(scenario, 4, transport);
    for (int run = 0; run < 3; ++run) {
      ExpectEqual(TrainInLockstep(scenario, 4, transport), first, NameOf(transport));
    }
  }
}

}  // namespace
}  // namespace lockstep
