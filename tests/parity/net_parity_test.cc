// A small net on several ranks against torch::optim on the whole batch.
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

namespace lockstep {
namespace {

constexpr int kSteps = 20;
constexpr int kBatch = 12;  // of all ranks together
// Passed in some steps, not in all.
constexpr double kNetMaxGradNorm = 1.2;

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
