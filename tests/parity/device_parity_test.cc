// Training whose parameters, gradients and optimizer state lie on another device than the
// CPU, against the serial reference. The device is made up, its memory is the host's: what
// LibTorch is given and asked for is what a GPU would be.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "common/policy/sync_policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/scenario.h"
#include "tests/parity/torch_world.h"
#include "torch/nn/module.h"
#include "worker/engine/engine.h"
#include "worker/torch/fake_device.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {
namespace {

// Within 1e-5, and 1e-7 near 0; of short types within one unit in the last place.
void ExpectNear(const Outcome& outcome, const Outcome& reference, const std::string& what) {
  EXPECT_EQ(outcome.refused, reference.refused) << what << ": " << outcome.first_refusal;
  ASSERT_EQ(outcome.norms.size(), reference.norms.size());
  for (std::size_t i = 0; i < reference.norms.size(); ++i) {
    EXPECT_NEAR(outcome.norms[i], reference.norms[i], 1e-12 * reference.norms[i]) << what;
  }
  for (const std::vector<at::Tensor>& rank : outcome.parameters) {
    ASSERT_EQ(rank.size(), reference.parameters[0].size());
    for (std::size_t i = 0; i < rank.size(); ++i) {
      const at::Tensor expected = reference.parameters[0][i].detach();
      if (expected.scalar_type() == at::kFloat) {
        EXPECT_TRUE(at::allclose(rank[i], expected, 1e-5, 1e-7)) << what << ", parameter " << i;
      } else {
        EXPECT_LE(LargestUlpDistance(rank[i], expected), 1) << what << ", parameter " << i;
      }
    }
  }
}

RankStep SometimesClippedPart(const Scenario& scenario, const Turn& turn) {
  RankStep part = ExactPart(scenario, turn);
  part.options.max_grad_norm = turn.step % 3 == 0 ? 0 : 0.5;
  return part;
}

TEST(OnADevice, EveryOptimizerOnEveryTypeIsNearTheReference) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    for (const NamedParameters& types : AllTypes()) {
      const Scenario scenario = {.parameters = types.parameters,
                                 .optimizer = optimizer.config,
                                 .device = FakeDevice(),
                                 .part = SometimesClippedPart};
      for (int world_size = 1; world_size <= 3; ++world_size) {
        ExpectNear(TrainInLockstep(scenario, world_size, Over::kInProcess),
                   TrainSerially(scenario, world_size), optimizer.name + " on " + types.name);
      }
    }
  }
}

TEST(OnADevice, GroupsLearningRatesAndWhatTrainingCodeWritesCount) {
  std::vector<TypedParameter> parameters = MixedTypes();
  parameters[2].group = 0;
  const Scenario scenario = {
      .parameters = parameters,
      .optimizer = AdamW{.lr = 1e-2, .groups = {{.pattern = "norm_bias", .lr_scale = 3}}},
      .device = FakeDevice(),
      .part = SometimesClippedPart,
      .learning_rate = [](int step) { return step < 4 ? 1e-2 : 2e-3; },
      .written = [](const Scenario& scenario, int step) {
        std::vector<at::Tensor> written(scenario.parameters.size());
        if (step == 3) {
          written[0] = at::full(scenario.parameters[0].shape, 0.75, scenario.parameters[0].type);
        }
        return written;
      }};
  ExpectNear(TrainInLockstep(scenario, 2, Over::kInProcess), TrainSerially(scenario, 2), "written");
}

TEST(OnADevice, AGradientThatIsNotFiniteIsRefusedByAllAlike) {
  const Scenario scenario = {.parameters = MixedTypes(),
                             .optimizer = AdamW{.lr = 1e-2},
                             .device = FakeDevice(),
                             .part = [](const Scenario& scenario, const Turn& turn) {
                               RankStep part = SometimesClippedPart(scenario, turn);
                               part.options.samples = 1;
                               if (turn.rank != 1) return part;
                               for (std::size_t i = 0; i < part.gradients.size(); ++i) {
                                 const TypedParameter& parameter = scenario.parameters[i];
                                 part.gradients[i] = at::ones(parameter.shape, parameter.type);
                               }
                               if (turn.step == 2) part.gradients[3].view(-1)[5] = NAN;
                               if (turn.step == 4) part.gradients[1].view(-1)[0] = -INFINITY;
                               return part;
                             }};
  const Outcome outcome = TrainInLockstep(scenario, 2, Over::kInProcess);
  EXPECT_THAT(outcome.refused,
              testing::ElementsAre(false, false, true, false, true, false, false, false));
  EXPECT_THAT(outcome.first_refusal, testing::HasSubstr("'fc_weight' on w1 (rank 1)"));
  ExpectNear(outcome, TrainSerially(scenario, 2), "not finite");
}

struct Buffered : torch::nn::Module {
  explicit Buffered(int rank) {
    weight = register_parameter("weight", at::ones({40}).to(FakeDevice()));
    frozen = register_parameter("frozen", at::full({3}, rank + 1.0f).to(FakeDevice()),
                                /*requires_grad=*/false);
    there = register_buffer("there", at::full({5}, rank + 1.0f).to(FakeDevice()));
    here = register_buffer("here", at::full({6}, rank + 1.0f));
    still = register_buffer("still", at::full({7}, 9.0f).to(FakeDevice()));
  }
  at::Tensor weight, frozen, there, here, still;
};

TEST(OnADevice, BuffersOfDeviceAndHostAreSynchronisedComparedAndMeasured) {
  const SyncPolicy policy = {.skip_unchanged = true, .check_parameters_every_steps = 1};
  std::vector<std::shared_ptr<Buffered>> nets;
  for (int rank = 0; rank < 2; ++rank) nets.push_back(std::make_shared<Buffered>(rank));
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = Sgd{.lr = 0.1},
       .policy = policy,
       .transports = std::make_shared<InProcessFactory>(),
       .device = FakeDevice()},
      {nets.begin(), nets.end()}, [&](int rank, Engine& engine) -> absl::Status {
        Buffered& net = *nets[rank];
        for (int step = 0; step < 3; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
          EXPECT_EQ(net.there.cpu()[4].item<float>(), 1 + 10 * step);
          EXPECT_EQ(net.here[5].item<float>(), 1 + 10 * step);
          // What no rank has changed is found so on the device.
          if (step > 0) {
            EXPECT_EQ(engine.stats().sync.last_bytes, 4 * (5 + 6));
            // All were equal since the start when the first forward came.
            EXPECT_EQ(engine.stats().sync.skipped_bytes, 4 * (5 + 6 + 7) + step * 4 * 7);
          }
          net.there.add_(10 + rank);
          net.here.add_(10 + rank);
          net.weight.sum().backward();
          LOCKSTEP_RETURN_IF_ERROR(engine.Step({}));
        }
        LOCKSTEP_ASSIGN_OR_RETURN(const BufferDrift drift, engine.MeasureBufferDrift());
        EXPECT_EQ(drift.largest, 1);
        EXPECT_EQ(drift.buffer, "there");
        if (rank == 1) net.frozen[2] = 100;
        net.weight.sum().backward();
        const absl::Status drifted = engine.Step({});
        EXPECT_THAT(drifted, StatusIs(absl::StatusCode::kFailedPrecondition,
                                      testing::HasSubstr("'frozen' on rank 1")));
        return absl::OkStatus();
      }));
}

}  // namespace
}  // namespace lockstep
