// How gradients come to be, rank by rank and step by step, against the serial reference:
// none, replaced, zeroed, accumulated, of uneven samples, too large for float16.
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using Deliver = std::function<void(const Tensors&, const RankStep&, const Turn&)>;

// With and without clipping, which are two ways through a step; on mixed types, and on
// float32 alone, of which then each rank owns a part. Gradients are exact.
void ExpectParityBothWays(const std::function<void(const Turn&, RankStep*)>& change,
                          const Deliver& deliver = nullptr) {
  for (const NamedParameters& types : AllTypes()) {
    if (types.name != "mixed" && types.name != "float32") continue;
    for (const double max_grad_norm : {0.0, 0.8}) {
      const Scenario scenario = {.parameters = types.parameters,
                                 .optimizer = AdamW{.lr = 1e-2, .weight_decay = 0.1},
                                 .part =
                                     [=](const Scenario& scenario, const Turn& turn) {
                                       RankStep part = ExactPart(scenario, turn);
                                       part.options.max_grad_norm = max_grad_norm;
                                       change(turn, &part);
                                       return part;
                                     },
                                 .deliver = deliver};
      const std::string what = types.name + (max_grad_norm == 0 ? "" : ", clipped");
      ExpectParity(scenario, what);
      ExpectEqual(TrainInLockstep(scenario, 2, Over::kGloo), TrainSerially(scenario, 2),
                  what + " over gloo");
    }
  }
}

void ChangeNothing(const Turn&, RankStep*) {}

TEST(None, OnOneRankCountsAsZero) {
  ExpectParityBothWays([](const Turn& turn, RankStep* part) {
    const std::size_t parameters = part->gradients.size();
    part->gradients[(turn.step + turn.rank) % parameters] = at::Tensor();
    if (turn.rank == 1) part->gradients.assign(parameters, at::Tensor());
  });
}

TEST(None, OnAllRanksInSomeStepsOrAllIsAStepWithZero) {
  ExpectParityBothWays([](const Turn& turn, RankStep* part) {
    part->gradients.back() = at::Tensor();  // in no step
    if (turn.step % 2 == 1) part->gradients[0] = at::Tensor();
    if (turn.step == 4) part->gradients.assign(part->gradients.size(), at::Tensor());
  });
}

// What an earlier step left in the memory must not come back: neither the rank's own
// gradient nor sums of all ranks.
TEST(None, AfterALargeGradientAndInStepsInARowIsZero) {
  ExpectParityBothWays([](const Turn& turn, RankStep* part) {
    for (at::Tensor& gradient : part->gradients) {
      if (gradient.defined()) gradient = turn.step % 2 == 0 ? gradient * 64 : at::Tensor();
    }
  });
  ExpectParityBothWays([](const Turn& turn, RankStep* part) {
    if (turn.step % 4 == 3 || turn.rank == turn.step / 4) return;
    part->gradients.assign(part->gradients.size(), at::Tensor());
  });
}

TEST(TrainingCode, MayReplaceAGradientOrTakeItAway) {
  ExpectParityBothWays(ChangeNothing, [](const Tensors& parameters, const RankStep& part,
                                         const Turn& turn) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& wanted = part.gradients[i];
      parameters[i].sum().backward();
      switch ((i + turn.step) % 4) {
        case 0:
          parameters[i].mutable_grad() = wanted.defined() ? wanted.clone() : at::Tensor();
          break;
        case 1:  // as zero_grad() and a second backward do
          parameters[i].mutable_grad() = at::Tensor();
          Backward({parameters[i]}, {wanted});
          break;
        case 2:  // not contiguous
          parameters[i].mutable_grad() =
              wanted.defined() ? at::stack({wanted, wanted}, -1).select(-1, 1) : at::Tensor();
          break;
        case 3:
          parameters[i].mutable_grad() = wanted.defined() ? wanted.to_sparse() : at::Tensor();
          break;
      }
    }
  });
}

TEST(TrainingCode, MayChangeAGradientInPlace) {
  ExpectParityBothWays(ChangeNothing, [](const Tensors& parameters, const RankStep& part,
                                         const Turn& turn) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& wanted = part.gradients[i];
      parameters[i].sum().backward();
      const at::Tensor& grad = parameters[i].grad();
      switch ((i + turn.step) % 4) {
        case 0:
          grad.zero_();
          Backward({parameters[i]}, {wanted});
          break;
        case 1:
          grad.copy_(wanted.defined() ? wanted : at::zeros_like(grad));
          break;
        case 2:  // through another tensor of the same memory
          grad.detach().view({-1}).zero_();
          if (wanted.defined()) grad.view({-1}).add_(wanted.reshape({-1}));
          break;
        case 3:
          grad.zero_();
          if (wanted.defined()) Backward({parameters[i]}, {wanted * 2});
          grad.mul_(0.5);
          break;
      }
    }
  });
}

TEST(TrainingCode, MayAccumulateOverTwoBackwards) {
  ExpectParityBothWays(ChangeNothing, [](const Tensors& parameters, const RankStep& part,
                                         const Turn& turn) {
    Tensors first, rest;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& wanted = part.gradients[i];
      first.push_back(!wanted.defined() ? wanted : DyadicGradient({"", wanted.sizes().vec(),
                                                                   wanted.scalar_type()}, i));
      // A gradient that only the second backward makes, too.
      if (i == 2 && turn.step % 2 == 0) first.back() = at::Tensor();
      rest.push_back(first.back().defined() ? wanted - first.back() : wanted);
    }
    Backward(parameters, first);
    Backward(parameters, rest);
  });
}

TEST(Samples, MayBeUnevenAndNone) {
  const auto samples_of = [](const Turn& turn) {
    // In step 6 no rank has any, which is refused.
    if (turn.step == 6) return 0;
    return (turn.step + turn.rank) % 3 == 2 && turn.world_size > 1
               ? 0
               : 1 + 3 * ((turn.step + 2 * turn.rank) % 5);
  };
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    ExpectParity({.parameters = MixedTypes(),
                  .optimizer = optimizer.config,
                  .part =
                      [&](const Scenario& scenario, const Turn& turn) {
                        RankStep part = RoundingPart(scenario, turn);
                        part.options.samples = samples_of(turn);
                        // Not to be read.
                        if (part.options.samples == 0 && turn.step != 6) {
                          for (at::Tensor& gradient : part.gradients) gradient.fill_(NAN);
                        }
                        return part;
                      }},
                 optimizer.name);
  }
}

TEST(Frozen, ParametersAreTheRootsAndStaySo) {
  std::vector<TypedParameter> parameters = MixedTypes();
  parameters[0].trainable = false;  // a bfloat16 matrix
  parameters[1].trainable = false;  // a float32 vector
  parameters[4].trainable = false;  // all of float16
  for (const double max_grad_norm : {0.0, 0.8}) {
    ExpectParity({.parameters = parameters,
                  .optimizer = AdamW{.lr = 1e-2},
                  .part =
                      [=](const Scenario& scenario, const Turn& turn) {
                        RankStep part = ExactPart(scenario, turn);
                        part.options.max_grad_norm = max_grad_norm;
                        return part;
                      }},
                 "frozen");
  }
}

// Float16 ends at 65504. The scale is halved after a refusal, as a gradient scaler does.
constexpr double kScales[] = {32768, 32768, 16384, 16384, 8192, 1024, 1, 1024};

RankStep ScaledPart(const Scenario& scenario, const Turn& turn, double max_grad_norm) {
  const double loss_scale = kScales[turn.step];
  RankStep part = ExactPart(scenario, turn);
  part.options.loss_scale = loss_scale;
  part.options.max_grad_norm = max_grad_norm;
  const std::vector<TypedParameter> trainable = scenario.Trainable();
  for (std::size_t i = 0; i < part.gradients.size(); ++i) {
    at::Tensor& gradient = part.gradients[i];
    if (!gradient.defined()) continue;
    gradient = gradient.to(at::kFloat);
    // On one rank, in one element.
    const bool overflows = turn.step < 5 && turn.step % 2 == 1;
    gradient = gradient.clamp(-1, 1);
    if (overflows && turn.rank == turn.world_size - 1) gradient.view({-1})[0] = 8;
    gradient = (gradient * loss_scale).to(trainable[i].type);
  }
  return part;
}

TEST(LossScale, ThatOverflowsOnOneRankIsRefusedOnAllAndTrainingGoesOnWithALowerOne) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const double max_grad_norm : {0.0, 0.05}) {
      const Scenario scenario = {.parameters = MixedTypes(),
                                 .optimizer = optimizer.config,
                                 .part = [=](const Scenario& scenario, const Turn& turn) {
                                   return ScaledPart(scenario, turn, max_grad_norm);
                                 }};
      ExpectParity(scenario, optimizer.name);
      EXPECT_THAT(TrainSerially(scenario, 2).refused,
                  testing::ElementsAre(false, true, false, true, false, false, false, false));
    }
  }
  const Scenario scenario = {.parameters = MixedTypes(),
                             .optimizer = AdamW{},
                             .part = [](const Scenario& scenario, const Turn& turn) {
                               return ScaledPart(scenario, turn, 0);
                             }};
  EXPECT_THAT(
      TrainInLockstep(scenario, 3, Over::kInProcess).first_refusal,
      testing::AllOf(testing::HasSubstr("'head_weight' on w2 (rank 2)"),
                     testing::HasSubstr("multiplied by 32768"), testing::HasSubstr("lower")));
}

TEST(LossScale, ThatIsAPowerOfTwoChangesNoBit) {
  const auto scaled_by = [](double loss_scale) {
    return Scenario{.parameters = MixedTypes(),
                    .optimizer = AdamW{.lr = 1e-2},
                    .part = [=](const Scenario& scenario, const Turn& turn) {
                      RankStep part = ExactPart(scenario, turn);
                      part.options.loss_scale = loss_scale;
                      for (at::Tensor& gradient : part.gradients) {
                        if (gradient.defined()) gradient = gradient * loss_scale;
                      }
                      return part;
                    }};
  };
  for (const Over transport : {Over::kInProcess, Over::kShm}) {
    ExpectEqual(TrainInLockstep(scaled_by(1024), 3, transport), TrainSerially(scaled_by(1), 3),
                NameOf(transport));
  }
}

}  // namespace
}  // namespace lockstep
