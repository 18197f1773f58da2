// Sizes at the borders against the serial reference: shards without elements, parameters
// without elements, modules without parameters, and parameters of many pieces.
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"

namespace lockstep {
namespace {

using enum c10::ScalarType;

// One sample on each rank: all sums are exact, so that the norm is.
RankStep OneSampleEach(const Scenario& scenario, const Turn& turn) {
  RankStep part = {.options = {.samples = 1}};
  for (const TypedParameter& parameter : scenario.Trainable()) {
    part.gradients.push_back(
        DyadicGradient(parameter, turn.step * 100 + turn.rank * 10 + part.gradients.size()));
  }
  return part;
}

// Also clipped: that is another way through a step.
void ExpectParityBothWays(const std::vector<TypedParameter>& parameters, const std::string& what,
                          int steps = 4) {
  for (const double max_grad_norm : {0.0, 0.5}) {
    const Scenario scenario = {.parameters = parameters,
                               .optimizer = AdamW{.lr = 1e-2},
                               .steps = steps,
                               .part = [=](const Scenario& scenario, const Turn& turn) {
                                 if (max_grad_norm == 0) return RoundingPart(scenario, turn);
                                 RankStep part = OneSampleEach(scenario, turn);
                                 part.options.max_grad_norm = max_grad_norm;
                                 return part;
                               }};
    ExpectParity(scenario, what);
    ExpectEqual(TrainInLockstep(scenario, 2, Over::kGloo),
                TrainSerially(scenario, 2), what + " over gloo");
  }
}

TEST(Shards, MayBeEmpty) {
  for (const c10::ScalarType type : {Float, BFloat16, Half}) {
    ExpectParityBothWays({{"only", {1}, type}}, c10::toString(type));
  }
  ExpectParityBothWays({{"a", {1}, Float}, {"b", {1}, Half}}, "two of four ranks own nothing");
  ExpectParityBothWays({{"a", {1}, Half}, {"b", {1}, BFloat16}, {"c", {1}, Float}},
                       "a block for each rank but one");
}

TEST(Shards, MayCutThroughBlocksAndTensors) {
  ExpectParityBothWays({{"a", {16}, BFloat16}, {"b", {17}, Float}, {"c", {15}, Half},
                        {"d", {33}, BFloat16}, {"e", {31}, Half}},
                       "around lines");
}

TEST(Parameters, MayHaveNoElements) {
  for (const c10::ScalarType type : {Float, BFloat16, Half}) {
    ExpectParityBothWays({{"only", {0}, type}}, c10::toString(type));
    ExpectParityBothWays({{"first", {0, 3}, type}, {"second", {5}, BFloat16}, {"last", {0}, type}},
                         c10::toString(type));
  }
}

TEST(Parameters, MayAllBeFrozenOrMissing) {
  ExpectParityBothWays({{"only", {7}, BFloat16, /*trainable=*/false}}, "frozen");
  ExpectParityBothWays({}, "missing");
}

// More than what transports move at once.
TEST(Parameters, MayHaveManyPieces) {
  ExpectParityBothWays({{"long", {70'003}, Float}, {"short", {150'001}, BFloat16},
                        {"shorter", {90'001}, Half}},
                       "large", /*steps=*/2);
}

}  // namespace
}  // namespace lockstep
