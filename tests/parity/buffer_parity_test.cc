// The buffers of batch norm on several ranks: apart without a sync, equal to the
// bit with one.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/parity/torch_world.h"
#include "torch/torch.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 5;

torch::nn::Sequential NetWithBatchNorm() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::ReLU(), torch::nn::Linear(8, 1));
}

// Each rank sees other data.
std::vector<at::Tensor> DataByRank() {
  torch::manual_seed(8);
  std::vector<at::Tensor> data;
  for (int rank = 0; rank < kRanks; ++rank) data.push_back(torch::randn({4, 6}) + rank);
  return data;
}

std::vector<std::shared_ptr<torch::nn::Module>> AsModules(
    const std::vector<torch::nn::Sequential>& nets) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const auto& net : nets) modules.push_back(net.ptr());
  return modules;
}

// Trains under `policy`; `at_end` runs on each rank behind the last step.
std::vector<torch::nn::Sequential> Train(
    const SyncPolicy& policy, std::shared_ptr<TransportFactory> transports,
    const std::function<absl::Status(int, Engine&)>& at_end =
        [](int, Engine&) { return absl::OkStatus(); }) {
  std::vector<torch::nn::Sequential> nets;
  for (int rank = 0; rank < kRanks; ++rank) nets.push_back(NetWithBatchNorm());
  const std::vector<at::Tensor> data = DataByRank();
  LOCKSTEP_EXPECT_OK(TrainTogether(
      {.optimizer = AdamW{.lr = 1e-2}, .policy = policy, .transports = std::move(transports)},
      AsModules(nets), [&](int rank, Engine& engine) -> absl::Status {
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(engine.BeforeForward());
          nets[rank]->forward(data[rank]).pow(2).mean().backward();
          LOCKSTEP_RETURN_IF_ERROR(engine.Step({.samples = 4}));
        }
        return at_end(rank, engine);
      }));
  return nets;
}

at::Tensor RunningMean(const torch::nn::Sequential& net) {
  return net->named_buffers()["1.running_mean"];
}

bool BuffersAreBitEqual(const std::vector<torch::nn::Sequential>& nets) {
  for (std::size_t i = 0; i < nets[0]->buffers().size(); ++i) {
    if (!torch::equal(nets[0]->buffers()[i], nets[1]->buffers()[i])) return false;
  }
  return true;
}

SyncPolicy Never() { return {.broadcast_buffers = false}; }
SyncPolicy EveryStep() {
  return {.schedule = {.every_forwards = 0, .every_steps = 1}};
}

TEST(BatchNorm, RunningStatisticsDriftApartWithoutASync) {
  const auto nets = Train(Never(), std::make_shared<InProcessFactory>());
  EXPECT_GT((RunningMean(nets[0]) - RunningMean(nets[1])).abs().max().item<float>(), 0.01);
  // Parameters do not: their gradients are reduced.
  for (std::size_t i = 0; i < nets[0]->parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(nets[0]->parameters()[i], nets[1]->parameters()[i]));
  }
}

TEST(BatchNorm, RunningStatisticsAreBitEqualWithASyncBehindEachStep) {
  for (const auto& transports : std::vector<std::shared_ptr<TransportFactory>>{
           std::make_shared<InProcessFactory>(), std::make_shared<ShmFactory>()}) {
    const auto nets = Train(EveryStep(), transports);
    EXPECT_TRUE(BuffersAreBitEqual(nets)) << transports->name();
    EXPECT_EQ(nets[1]->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), kSteps);
  }
}

TEST(BatchNorm, ASyncBeforeEachForwardLeavesTheLastForwardsDifference) {
  const auto nets = Train(SyncPolicy(), std::make_shared<InProcessFactory>());
  EXPECT_FALSE(BuffersAreBitEqual(nets));
}

TEST(BatchNorm, AManualBroadcastGivesAllRanksTheRootsStatistics) {
  std::vector<BufferDrift> before(kRanks);
  std::vector<BufferDrift> after(kRanks);
  const auto nets = Train(Never(), std::make_shared<InProcessFactory>(),
                          [&](int rank, Engine& engine) -> absl::Status {
                            LOCKSTEP_ASSIGN_OR_RETURN(before[rank], engine.MeasureBufferDrift());
                            LOCKSTEP_RETURN_IF_ERROR(engine.BroadcastBuffers(1));
                            LOCKSTEP_ASSIGN_OR_RETURN(after[rank], engine.MeasureBufferDrift());
                            return absl::OkStatus();
                          });
  EXPECT_TRUE(BuffersAreBitEqual(nets));
  const auto unsynced = Train(Never(), std::make_shared<InProcessFactory>());
  EXPECT_TRUE(torch::equal(RunningMean(nets[0]), RunningMean(unsynced[1])));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_GT(before[rank].largest, 0.01);
    EXPECT_EQ(before[rank].buffer.substr(0, 10), "1.running_");
    EXPECT_EQ(after[rank].largest, 0);
  }
}

TEST(BatchNorm, AnIgnoredBufferStaysEachRanksOwn) {
  SyncPolicy policy = EveryStep();
  policy.ignore_list = {"**.running_mean"};
  const auto nets = Train(policy, std::make_shared<InProcessFactory>());
  EXPECT_FALSE(torch::equal(RunningMean(nets[0]), RunningMean(nets[1])));
  EXPECT_TRUE(torch::equal(nets[0]->named_buffers()["1.running_var"],
                           nets[1]->named_buffers()["1.running_var"]));
}

}  // namespace
}  // namespace lockstep
