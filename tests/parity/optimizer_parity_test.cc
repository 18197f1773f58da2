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
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/parity/torch_world.h"
#include "torch/torch.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

constexpr int kSteps = 20;
constexpr int kBatch = 12;  // of all ranks together

struct OptimizerCase {
  std::string name;
  OptimizerConfig ours;
  std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> theirs;
};

std::vector<OptimizerCase> Optimizers() {
  return {
      {"Sgd", lockstep::Sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3},
       [](auto p) {
         return std::make_shared<torch::optim::SGD>(
             p, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
       }},
      {"Nesterov", lockstep::Sgd{.lr = 0.05, .momentum = 0.9, .nesterov = true},
       [](auto p) {
         return std::make_shared<torch::optim::SGD>(
             p, torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
       }},
      {"Adam", lockstep::Adam{.lr = 1e-2, .weight_decay = 1e-3},
       [](auto p) {
         return std::make_shared<torch::optim::Adam>(
             p, torch::optim::AdamOptions(1e-2).weight_decay(1e-3));
       }},
      {"AdamW", lockstep::AdamW{.lr = 1e-2, .weight_decay = 0.1},
       [](auto p) {
         return std::make_shared<torch::optim::AdamW>(
             p, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
       }},
      {"Adagrad", lockstep::Adagrad{.lr = 5e-2},
       [](auto p) {
         return std::make_shared<torch::optim::Adagrad>(p, torch::optim::AdagradOptions(5e-2));
       }},
      {"AdagradWithAllSettings",
       lockstep::Adagrad{.lr = 5e-2, .lr_decay = 0.1, .weight_decay = 1e-3,
                         .initial_accumulator_value = 0.1, .eps = 1e-8},
       [](auto p) {
         return std::make_shared<torch::optim::Adagrad>(
             p, torch::optim::AdagradOptions(5e-2).lr_decay(0.1).weight_decay(1e-3)
                    .initial_accumulator_value(0.1).eps(1e-8));
       }},
  };
}

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
      all.push_back(register_parameter("p" + std::to_string(all.size()), torch::randn(shape)));
    }
  }
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

std::vector<at::Tensor> TrainExactly(const OptimizerConfig& optimizer, int world_size,
                                     std::shared_ptr<TransportFactory> transports) {
  std::vector<std::shared_ptr<LinearLossImpl>> nets;
  for (int rank = 0; rank < world_size; ++rank) nets.push_back(std::make_shared<LinearLossImpl>());
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = optimizer, .transports = std::move(transports)}, {nets.begin(), nets.end()},
      [&](int rank, Engine& engine) -> absl::Status {
        const std::vector<at::Tensor>& parameters = nets[rank]->all;
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
          std::int64_t samples = 0;
          for (int sample = 0; sample < kBatch; ++sample) {
            if (RankOf(step, sample, world_size) != rank) continue;
            ++samples;
            for (std::size_t i = 0; i < parameters.size(); ++i) {
              (parameters[i] * SampleGradient(step, sample, i, parameters[i].sizes()))
                  .sum()
                  .backward();
            }
          }
          LOCKSTEP_RETURN_IF_ERROR(
              engine.Step({.samples = samples, .loss = LossReduction::kSum}));
        }
        return absl::OkStatus();
      }));
  for (const auto& net : nets) ExpectBitEqual(net->all, nets[0]->all, "between ranks");
  return nets[0]->all;
}

std::vector<at::Tensor> TrainExactlyByTorch(const OptimizerCase& optimizer) {
  LinearLossImpl net;
  const auto theirs = optimizer.theirs(net.all);
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < net.all.size(); ++i) {
      at::Tensor sum = at::zeros(net.all[i].sizes());
      for (int sample = 0; sample < kBatch; ++sample) {
        sum += SampleGradient(step, sample, i, net.all[i].sizes());
      }
      net.all[i].mutable_grad() = sum * static_cast<float>(1.0 / kBatch);
    }
    theirs->step();
  }
  return net.all;
}

TEST(Exact, ParametersAreBitEqualForAnyNumberOfRanksOnAnyTransport) {
  for (const OptimizerCase& optimizer : Optimizers()) {
    const std::vector<at::Tensor> one =
        TrainExactly(optimizer.ours, 1, std::make_shared<InProcessFactory>());
    for (int world_size = 1; world_size <= 4; ++world_size) {
      const std::string what = optimizer.name + " on " + std::to_string(world_size) + " ranks";
      ExpectBitEqual(TrainExactly(optimizer.ours, world_size, std::make_shared<InProcessFactory>()),
                     one, what + ", in-process");
      ExpectBitEqual(TrainExactly(optimizer.ours, world_size, std::make_shared<ShmFactory>()), one,
                     what + ", shared memory");
    }
    ExpectClose(one, TrainExactlyByTorch(optimizer), 1e-5, 1e-7, optimizer.name + " by torch");
  }
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
  for (const OptimizerCase& optimizer : Optimizers()) {
    torch::nn::Sequential reference = NetWithoutBatchNorm();
    const auto theirs = optimizer.theirs(reference->parameters());
    for (int step = 0; step < kSteps; ++step) {
      theirs->zero_grad();
      LossOf(reference, step, 0, kBatch).backward();
      theirs->step();
    }
    for (int world_size = 1; world_size <= 4; ++world_size) {
      std::vector<torch::nn::Sequential> nets;
      std::vector<std::shared_ptr<torch::nn::Module>> modules;
      for (int rank = 0; rank < world_size; ++rank) {
        nets.push_back(NetWithoutBatchNorm());
        modules.push_back(nets.back().ptr());
      }
      LOCKSTEP_ASSERT_OK(TrainTogether(
          {.optimizer = optimizer.ours, .transports = std::make_shared<InProcessFactory>()},
          modules, [&](int rank, Engine& engine) -> absl::Status {
            // Of 12 samples: the last rank has what the others leave.
            const std::int64_t part = kBatch / world_size - (world_size > 1 ? 1 : 0);
            const std::int64_t begin = rank * part;
            const std::int64_t end = rank + 1 == world_size ? kBatch : begin + part;
            for (int step = 0; step < kSteps; ++step) {
              LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
              LossOf(nets[rank], step, begin, end).backward();
              LOCKSTEP_RETURN_IF_ERROR(engine.Step({.samples = end - begin}));
            }
            return absl::OkStatus();
          }));
      ExpectClose(nets[0]->parameters(), reference->parameters(), 1e-5, 1e-7,
                  optimizer.name + " on " + std::to_string(world_size) + " ranks");
    }
  }
}

}  // namespace
}  // namespace lockstep
