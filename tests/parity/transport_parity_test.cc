// One training over each transport, again and again: the same bits.
#include <limits>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"

namespace lockstep {
namespace {

constexpr int kRuns = 3;
constexpr double kMeasuredOnly = std::numeric_limits<double>::infinity();

// All sums round; a parameter has no gradient now and then.
Scenario Training(const OptimizerConfig& optimizer, double max_grad_norm) {
  std::vector<TypedParameter> parameters = MixedTypes();
  parameters.push_back({"table", {1501, 3}, c10::ScalarType::BFloat16});
  return {.parameters = parameters,
          .optimizer = optimizer,
          .part = [=](const Scenario& scenario, const Turn& turn) {
            RankStep part = RoundingPart(scenario, turn);
            part.options.max_grad_norm = max_grad_norm;
            part.gradients[(turn.step + turn.rank) % part.gradients.size()] = at::Tensor();
            return part;
          }};
}

TEST(Runs, AreBitEqualFromRunToRunAndOverEachTransport) {
  for (const double max_grad_norm : {0.0, 2.0, kMeasuredOnly}) {
    const Scenario scenario = Training(AdamW{.lr = 1e-2}, max_grad_norm);
    for (int world_size = 2; world_size <= 4; ++world_size) {
      const Outcome first =
          TrainInLockstep(scenario, world_size, Over::kInProcess);
      for (const Over transport : {Over::kInProcess, Over::kShm, Over::kGloo}) {
        const int runs = transport == Over::kGloo ? 1 : kRuns;
        for (int run = 0; run < runs; ++run) {
          ExpectEqual(TrainInLockstep(scenario, world_size, transport), first,
                      NameOf(transport) + " on " + std::to_string(world_size) +
                          " ranks, run " + std::to_string(run));
        }
      }
    }
  }
}

TEST(Gloo, EqualsTheReferenceForEachOptimizer) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    const Scenario scenario = Training(optimizer.config, 0);
    ExpectEqual(TrainInLockstep(scenario, 3, Over::kGloo), TrainSerially(scenario, 3),
                optimizer.name);
  }
}

}  // namespace
}  // namespace lockstep
