// Parameters of short types that training code writes between steps, or broadcasts: the
// masters follow. Against the serial reference, to the bit.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"

namespace lockstep {
namespace {

// All parameters ahead of step 3, as load_state_dict does, and one ahead of step 5.
std::vector<at::Tensor> LoadedValues(const Scenario& scenario, int step) {
  std::vector<at::Tensor> values;
  for (const TypedParameter& parameter : scenario.Trainable()) {
    const bool writes = step == 3 || (step == 5 && values.size() == 1);
    values.push_back(writes ? RoundingGradient(parameter, 7 * step + values.size())
                            : at::Tensor());
  }
  return values;
}

TEST(Written, ParametersOfEachTypeCount) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const NamedParameters& types : AllTypes()) {
      if (optimizer.name != "AdamW" && types.name != "mixed") continue;
      ExpectParity({.parameters = types.parameters,
                    .optimizer = optimizer.config,
                    .part = RoundingPart,
                    .written = LoadedValues},
                   optimizer.name + " on " + types.name);
    }
  }
}

TEST(Written, ParametersCountInClippedSteps) {
  ExpectParity({.parameters = MixedTypes(),
                .optimizer = AdamW{.lr = 1e-2},
                .part =
                    [](const Scenario& scenario, const Turn& turn) {
                      RankStep part = ExactPart(scenario, turn);
                      part.options.max_grad_norm = 0.8;
                      return part;
                    },
                .written = LoadedValues},
               "clipped");
}

// Ahead of a step that is refused they count in the next one.
TEST(Written, ParametersOutliveARefusedStep) {
  ExpectParity({.parameters = MixedTypes(),
                .optimizer = AdamW{.lr = 1e-2},
                .part =
                    [](const Scenario& scenario, const Turn& turn) {
                      RankStep part = RoundingPart(scenario, turn);
                      if (turn.step == 3 && turn.rank == 0) part.gradients[0].fill_(INFINITY);
                      return part;
                    },
                .written = LoadedValues},
               "refused");
}

// The others hold what they wrote themselves, until then.
Scenario Broadcasting(const OptimizerConfig& optimizer) {
  return {.parameters = MixedTypes(),
          .optimizer = optimizer,
          .part = RoundingPart,
          .written = LoadedValues,
          .root = [](int step, int world_size) -> std::optional<int> {
            if (step == 3) return world_size - 1;
            return step == 5 ? std::optional<int>(0) : std::nullopt;
          }};
}

TEST(BroadcastParameters, MakesShortTypesTheRootsAndTrainingGoesOnFromThem) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    ExpectParity(Broadcasting(optimizer.config), optimizer.name);
  }
}

TEST(BroadcastParameters, DoesSoOverGloo) {
  const Scenario scenario = Broadcasting(AdamW{.lr = 1e-2});
  ExpectEqual(TrainInLockstep(scenario, 3, Over::kGloo),
              TrainSerially(scenario, 3), "gloo");
}

}  // namespace
}  // namespace lockstep
