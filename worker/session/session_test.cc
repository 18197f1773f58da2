#include "worker/session/session.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/sharding/shard_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/script.h"
#include "torch/torch.h"
#include "worker/engine/manual_link.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

torch::nn::Sequential SmallNet() {
  torch::manual_seed(3);
  return torch::nn::Sequential(
      // Behind a bias, batch norm leaves of its gradient nothing but rounding errors,
      // which Adam scales up to whole steps: there is none.
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)),
      torch::nn::BatchNorm2d(4),
      torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(4 * 6 * 6, 5));
}

// Batch `step` of a small classification task.
std::pair<at::Tensor, at::Tensor> SomeBatch(int step) {
  torch::manual_seed(1000 + step);
  return {torch::randn({8, 1, 6, 6}), torch::randint(5, {8}, torch::kLong)};
}

// |a - b| <= floor + tolerance * |b|, element by element.
void ExpectClose(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                 double tolerance, double floor) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor excess = (a[i] - b[i]).abs() - floor - tolerance * b[i].abs();
    EXPECT_LE(excess.max().item<float>(), 0)
        << "tensor " << i << ": apart by up to " << (a[i] - b[i]).abs().max().item<float>();
  }
}

// Twenty steps by a session and by the optimizer `make` makes, on equal nets.
template <typename MakeOptimizer>
void ExpectParity(const OptimizerConfig& config, MakeOptimizer make) {
  torch::nn::Sequential net = SmallNet();
  torch::nn::Sequential reference = SmallNet();
  auto optimizer = make(reference->parameters());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *net, config));
  for (int step = 0; step < 20; ++step) {
    const auto [x, y] = SomeBatch(step);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(reference->forward(x), y).backward();
    optimizer.step();
    LOCKSTEP_ASSERT_OK(session->BeforeForward());
    torch::nn::functional::cross_entropy(net->forward(x), y).backward();
    LOCKSTEP_ASSERT_OK(session->Step({.samples = x.size(0)}));
  }
  EXPECT_EQ(session->step(), 20);
  ExpectClose(net->parameters(), reference->parameters(), 1e-5, 1e-7);
  ExpectClose(net->buffers(), reference->buffers(), 1e-5, 1e-7);
}

TEST(Parity, SgdWithMomentumTrainsAsTorchDoes) {
  ExpectParity(Sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3}, [](auto parameters) {
    return torch::optim::SGD(
        parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  });
}

TEST(Parity, AdamTrainsAsTorchDoes) {
  ExpectParity(Adam{.lr = 1e-2}, [](auto parameters) {
    return torch::optim::Adam(parameters, torch::optim::AdamOptions(1e-2));
  });
}

TEST(Parity, AdamWTrainsAsTorchDoes) {
  ExpectParity(AdamW{.lr = 1e-2, .weight_decay = 0.1}, [](auto parameters) {
    return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  });
}

TEST(Session, AloneIsRankZeroOfOne) {
  torch::nn::Sequential net = SmallNet();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *net, AdamW{}));
  EXPECT_EQ(session->rank(), 0);
  EXPECT_EQ(session->world_size(), 1);
  EXPECT_EQ(session->step(), 0);
  EXPECT_TRUE(session->policy().broadcast_buffers);
  EXPECT_EQ(session->stats().optimizer_bytes % 8, 0);
  EXPECT_GT(session->stats().optimizer_bytes, 0);
  EXPECT_TRUE(session->applied().empty());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift, session->MeasureBufferDrift());
  EXPECT_EQ(drift.largest, 0);
  LOCKSTEP_EXPECT_OK(session->BroadcastBuffers(0));
  LOCKSTEP_EXPECT_OK(session->BroadcastParameters(0));
  EXPECT_THAT(session->BroadcastBuffers(1), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Runs `body` on two sessions side by side, under the default policy: buffers are
// broadcast before each training forward.
void RunTwoRanks(const std::function<void(Session&)>& body) {
  EndpointBoard board;
  const auto transports = std::make_shared<InProcessFactory>();
  std::vector<torch::nn::Sequential> nets = {SmallNet(), SmallNet()};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                                    ModuleModel(TensorsOf(*nets[rank])).Describe());
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 2));
      auto link = std::make_unique<ManualLink>(&board);
      link->Propose({.epoch = Epoch(1),
                     .members = {"w0", "w1"},
                     .plan = plan,
                     .revision = Revision(1),
                     .ready_timeout = absl::Seconds(60)});
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const auto session,
          Session::JoinBy(std::move(link), transports, {.worker = rank == 0 ? "w0" : "w1"},
                          *nets[rank], AdamW{}));
      EXPECT_EQ(session->rank(), rank);
      EXPECT_EQ(session->world_size(), 2);
      body(*session);
      session->Leave(absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Session, OnlyTheFirstTrainingForwardOfAStepTriggersASync) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().syncs;
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().syncs, before + 1);
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().syncs, before + 1);
  });
}

TEST(Session, NoSyncTriggersNothing) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().syncs;
    {
      const auto no_sync = session.NoSync();
      const auto nested = session.NoSync();
      LOCKSTEP_ASSERT_OK(session.BeforeForward());
    }
    EXPECT_EQ(session.stats().syncs, before);
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().syncs, before + 1);
  });
}

TEST(Session, AForwardWithoutAutogradTriggersNothing) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().syncs;
    {
      const torch::NoGradGuard no_grad;
      LOCKSTEP_ASSERT_OK(session.BeforeForward());
    }
    EXPECT_EQ(session.stats().syncs, before);
  });
}

TEST(Session, AccumulatedGradientsEqualOneLargeBatch) {
  torch::nn::Linear parts(4, 2);
  torch::nn::Linear whole(4, 2);
  {
    const torch::NoGradGuard no_grad;
    whole->weight.copy_(parts->weight);
    whole->bias.copy_(parts->bias);
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto in_parts, Session::Join({}, *parts, Sgd{.lr = 0.5}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto at_once, Session::Join({}, *whole, Sgd{.lr = 0.5}));
  const at::Tensor x = torch::arange(24).reshape({6, 4}) / 8.0;
  for (int part = 0; part < 3; ++part) {
    parts->forward(x.slice(0, 2 * part, 2 * part + 2)).sum().backward();
  }
  LOCKSTEP_ASSERT_OK(in_parts->Step({.samples = 6, .loss = LossReduction::kSum}));
  whole->forward(x).sum().backward();
  LOCKSTEP_ASSERT_OK(at_once->Step({.samples = 6, .loss = LossReduction::kSum}));
  ExpectClose(parts->parameters(), whole->parameters(), 1e-6, 1e-7);
}

TEST(Session, ATorchScriptModuleTrains) {
  torch::jit::Module module("m");
  module.register_parameter("weight", torch::zeros({3}).requires_grad_(), /*is_buffer=*/false);
  module.define("def forward(self, x):\n    return (self.weight * x).sum()\n");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, module, Sgd{.lr = 0.5}));
  module.forward({torch::full({3}, 2.0)}).toTensor().backward();
  LOCKSTEP_ASSERT_OK(session->Step({}));
  EXPECT_TRUE(torch::equal(module.attr("weight").toTensor(), torch::full({3}, -1.0)));
}

TEST(Session, MistakesAreRefusedBeforeAnythingIsChanged) {
  torch::nn::Sequential net = SmallNet();
  EXPECT_THAT(Session::Join({.coordinator = "nowhere"}, *net, AdamW{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("coordinator")));
  EXPECT_THAT(Session::Join({}, *net, AdamW{.lr = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lr")));
  net->to(torch::kDouble);
  EXPECT_THAT(Session::Join({}, *net, AdamW{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'0.weight'")));
  net->to(torch::kFloat);
  EXPECT_FALSE(net->parameters()[0].grad().defined());
}

TEST(Session, AGradientThatIsNotFiniteIsRefusedAndTrainingGoesOn) {
  torch::nn::Sequential net = SmallNet();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *net, AdamW{}));
  const at::Tensor before = net->parameters()[0].detach().clone();
  const auto [x, y] = SomeBatch(0);
  (net->forward(x).sum() * std::numeric_limits<float>::infinity()).backward();
  EXPECT_THAT(session->Step({}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(torch::equal(net->parameters()[0], before));
  torch::nn::functional::cross_entropy(net->forward(x), y).backward();
  LOCKSTEP_EXPECT_OK(session->Step({.samples = 8}));
  EXPECT_EQ(session->step(), 1);
}

TEST(Session, AfterLeavingTheModuleIsItsOwnAgain) {
  torch::nn::Sequential net = SmallNet();
  const at::Tensor before = net->parameters()[0].detach().clone();
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *net, AdamW{}));
    session->Leave(absl::OkStatus());
    EXPECT_THAT(session->Step({}), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_TRUE(torch::equal(net->parameters()[0], before));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, Session::Join({}, *net, AdamW{}));
}

}  // namespace
}  // namespace lockstep
