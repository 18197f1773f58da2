#include "worker/session/session.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
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

torch::nn::BatchNorm2dImpl& NormOf(torch::nn::Sequential& small_net) {
  return *small_net[1]->as<torch::nn::BatchNorm2d>();
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

// One of two ranks: a net that is trained, and a second one attached as "ema".
struct Replica {
  int rank = 0;
  torch::nn::Sequential net = SmallNet();
  torch::nn::Sequential ema = SmallNet();
  Session* session = nullptr;
  ManualLink* link = nullptr;

  torch::nn::BatchNorm2dImpl& norm() { return NormOf(net); }
  // A step on a batch of its own.
  void Train() {
    const auto [x, y] = SomeBatch(rank);
    torch::nn::functional::cross_entropy(net->forward(x), y).backward();
    LOCKSTEP_ASSERT_OK(session->Step({.samples = x.size(0)}));
  }
};

// Runs `body` on two ranks side by side.
void RunTwoRanks(const SyncPolicy& policy, const std::function<void(Replica&)>& body) {
  EndpointBoard board;
  const auto transports = std::make_shared<InProcessFactory>();
  std::vector<Replica> replicas(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Replica& replica = replicas[rank];
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                                    ModuleModel(TensorsOf(*replica.net)).Describe());
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 2));
      auto link = std::make_unique<ManualLink>(&board);
      link->Propose({.epoch = Epoch(1),
                     .members = {"w0", "w1"},
                     .plan = plan,
                     .revision = Revision(1),
                     .policy = policy,
                     .ready_timeout = absl::Seconds(60)});
      replica.rank = rank;
      replica.link = link.get();
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const auto session,
          Session::JoinBy(std::move(link), transports, {.worker = rank == 0 ? "w0" : "w1"},
                          *replica.net, AdamW{}, {{"ema", replica.ema.get()}}));
      EXPECT_EQ(session->rank(), rank);
      EXPECT_EQ(session->world_size(), 2);
      replica.session = session.get();
      body(replica);
      session->Leave(absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Under the default policy: buffers are broadcast before each training forward.
void RunTwoRanks(const std::function<void(Session&)>& body) {
  RunTwoRanks(SyncPolicy{}, [&](Replica& replica) { body(*replica.session); });
}

TEST(Session, OnlyTheFirstTrainingForwardOfAStepTriggersASync) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().sync.syncs;
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().sync.syncs, before + 1);
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().sync.syncs, before + 1);
  });
}

TEST(Session, NoSyncTriggersNothing) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().sync.syncs;
    {
      const auto no_sync = session.NoSync();
      const auto nested = session.NoSync();
      LOCKSTEP_ASSERT_OK(session.BeforeForward());
    }
    EXPECT_EQ(session.stats().sync.syncs, before);
    LOCKSTEP_ASSERT_OK(session.BeforeForward());
    EXPECT_EQ(session.stats().sync.syncs, before + 1);
  });
}

TEST(Session, AForwardWithoutAutogradTriggersNothing) {
  RunTwoRanks([](Session& session) {
    const std::int64_t before = session.stats().sync.syncs;
    {
      const torch::NoGradGuard no_grad;
      LOCKSTEP_ASSERT_OK(session.BeforeForward());
    }
    EXPECT_EQ(session.stats().sync.syncs, before);
  });
}

TEST(Buffers, BatchNormStatisticsAreAveragedAndCountersTakeTheLargest) {
  const SyncPolicy policy = {
      .rules = {{.pattern = "**.running_*", .operation = Operation::kMean},
                {.pattern = "**.num_batches_tracked", .operation = Operation::kMax}}};
  std::vector<std::vector<at::Tensor>> before(2);  // by rank
  RunTwoRanks(policy, [&](Replica& replica) {
    // Rank 1 sees another batch, and one more.
    for (int i = 0; i <= replica.rank; ++i) replica.net->forward(SomeBatch(replica.rank).first);
    for (const at::Tensor& buffer : replica.net->buffers()) {
      before[replica.rank].push_back(buffer.clone());
    }
    LOCKSTEP_ASSERT_OK(replica.session->BeforeForward());  // waits for both
    ASSERT_FALSE(torch::equal(before[0][0], before[1][0]));
    const torch::nn::BatchNorm2dImpl& norm = replica.norm();
    ExpectClose({norm.running_mean, norm.running_var},
                {(before[0][0] + before[1][0]) / 2, (before[0][1] + before[1][1]) / 2}, 1e-6,
                1e-7);
    EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 2);
    // These two, and a broadcast of what no rule names: the attached parameters.
    EXPECT_EQ(replica.session->stats().sync.last_transfers, 3);
  });
}

TEST(Buffers, AnAttachedCopyIsKeptEqualAndNotTrained) {
  RunTwoRanks(SyncPolicy{}, [](Replica& replica) {
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : replica.ema->parameters()) parameter.fill_(replica.rank + 1);
      for (at::Tensor& buffer : replica.ema->buffers()) buffer.fill_(replica.rank + 1);
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift, replica.session->MeasureBufferDrift());
    EXPECT_EQ(drift.largest, 1);
    EXPECT_EQ(drift.buffer.substr(0, 4), "ema.");
    LOCKSTEP_ASSERT_OK(replica.session->BeforeForward());
    replica.Train();
    for (const at::Tensor& parameter : replica.ema->parameters()) {
      EXPECT_TRUE(torch::equal(parameter, torch::ones_like(parameter)));
    }
    for (const at::Tensor& buffer : replica.ema->buffers()) {
      EXPECT_TRUE(torch::equal(buffer, torch::ones_like(buffer)));
    }
  });
}

TEST(Buffers, AnAttachedCopyIsSelectedByItsNames) {
  RunTwoRanks(SyncPolicy{.ignore_list = {"ema.**"}}, [](Replica& replica) {
    replica.norm().running_mean.fill_(replica.rank);
    NormOf(replica.ema).running_mean.fill_(replica.rank);
    LOCKSTEP_ASSERT_OK(replica.session->BeforeForward());
    EXPECT_EQ(replica.norm().running_mean[0].item<float>(), 0);
    EXPECT_EQ(NormOf(replica.ema).running_mean[0].item<float>(), replica.rank);
  });
}

TEST(Buffers, BuffersThatAreReplacedOrRegisteredLaterAreFollowed) {
  RunTwoRanks(SyncPolicy{}, [](Replica& replica) {
    torch::nn::BatchNorm2dImpl& norm = replica.norm();
    norm.running_mean.set_data(torch::full({7}, replica.rank + 1.0, torch::kDouble));
    // Transposed on one rank.
    const at::Tensor late = replica.rank == 0 ? torch::arange(6).reshape({2, 3})
                                              : torch::zeros({3, 2}, torch::kLong).t();
    norm.register_buffer("late", late);
    LOCKSTEP_ASSERT_OK(replica.session->BeforeForward());
    EXPECT_TRUE(torch::equal(norm.running_mean, torch::ones({7}, torch::kDouble)));
    EXPECT_TRUE(torch::equal(late, torch::arange(6).reshape({2, 3})));
    EXPECT_EQ(late.is_contiguous(), replica.rank == 0);
  });
}

TEST(Buffers, OneThatOnlyOneRankHasIsAnErrorThatNamesItOnBoth) {
  RunTwoRanks(SyncPolicy{}, [](Replica& replica) {
    if (replica.rank == 1) replica.norm().register_buffer("late", torch::zeros({2}));
    const absl::Status status = replica.session->BeforeForward();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("1.late"));
  });
}

TEST(Buffers, AreSynchronisedBeforeACheckpointAndOnCommand) {
  const Schedule schedule = {.every_forwards = 0, .before_checkpoint = true};
  RunTwoRanks(SyncPolicy{.schedule = schedule}, [](Replica& replica) {
    const at::Tensor mean = replica.norm().running_mean;
    mean.fill_(replica.rank + 1);
    LOCKSTEP_ASSERT_OK(replica.session->BeforeForward());
    LOCKSTEP_ASSERT_OK(replica.session->BeforeEvaluation());
    EXPECT_EQ(mean[0].item<float>(), replica.rank + 1);
    LOCKSTEP_ASSERT_OK(replica.session->BeforeCheckpoint());
    EXPECT_EQ(mean[0].item<float>(), 1);
    mean.fill_(replica.rank + 1);
    LOCKSTEP_ASSERT_OK(replica.session->SyncBuffers());
    EXPECT_EQ(mean[0].item<float>(), 1);
  });
}

TEST(RevisePolicy, AloneItIsInForceAfterTheNextStep) {
  Replica replica;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *replica.net, AdamW{}));
  const Revision first = session->revision();
  const SyncPolicy revised = {.ignore_list = {"1.running_*"}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision revision,
                                session->RevisePolicy(revised, "statistics are local"));
  EXPECT_GT(revision, first);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision again, session->RevisePolicy(revised, "the same"));
  EXPECT_EQ(again, revision);
  EXPECT_EQ(session->revision(), first);
  EXPECT_THAT(session->RevisePolicy({.ignore_list = {"1.runing_*"}}, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1.runing_*")));
  LOCKSTEP_ASSERT_OK(session->Step({}));
  EXPECT_EQ(session->revision(), revision);
  EXPECT_EQ(session->policy(), revised);
  EXPECT_EQ(session->applied().size(), 1u);
}

TEST(RevisePolicy, RanksThatAskForTheSameHaveItAfterTheSameStep) {
  const SyncPolicy revised = {.broadcast_buffers = false};
  RunTwoRanks(SyncPolicy{}, [&](Replica& replica) {
    Session& session = *replica.session;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision revision, session.RevisePolicy(revised, ""));
    EXPECT_EQ(revision, Revision(2));
    EXPECT_EQ(session.revision(), Revision(1));
    replica.Train();
    EXPECT_EQ(session.revision(), Revision(2));
    EXPECT_EQ(session.policy(), revised);
  });
}

TEST(RevisePolicy, ARankThatHasNotHeardOfItHoldsItBackForAll) {
  const SyncPolicy revised = {.broadcast_buffers = false};
  RunTwoRanks(SyncPolicy{}, [&](Replica& replica) {
    Session& session = *replica.session;
    if (replica.rank == 0) {
      LOCKSTEP_ASSERT_OK(session.RevisePolicy(revised, "").status());
    }
    replica.Train();
    EXPECT_EQ(session.revision(), Revision(1));
    if (replica.rank == 1) {
      replica.link->Append({LogNumber(1), PolicyRevised{Revision(2), revised}});
    }
    replica.Train();
    EXPECT_EQ(session.revision(), Revision(2));
    ASSERT_EQ(session.applied().size(), 1u);
    EXPECT_EQ(session.applied()[0].step, 2);
  });
}

TEST(Attached, MistakesAreRefusedByName) {
  Replica replica;
  const auto join = [&](const std::string& prefix, torch::nn::Module* module) {
    return Session::Join({}, *replica.net, AdamW{}, {{prefix, module}}).status();
  };
  EXPECT_THAT(join("ema", nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'ema' is null")));
  EXPECT_THAT(join("ema.", replica.ema.get()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'ema.'")));
  EXPECT_THAT(join("ema", replica.net.get()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'0.weight'")));
  torch::nn::Module taken;
  taken.register_buffer("running_mean", torch::zeros({4}));
  EXPECT_THAT(join("1", &taken),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'1.running_mean'")));
  LOCKSTEP_EXPECT_OK(join("copies.ema", replica.ema.get()));
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
  EXPECT_THAT(Session::Join({}, *net, AdamW{.groups = {{.pattern = "**.wait"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("**.wait")));
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

TEST(Session, TheLearningRateIsThatOfTheNextStepAndTheNormIsReported) {
  torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(2, 1).bias(false)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto session, Session::Join({}, *net, Sgd{.lr = 0.5}));
  const at::Tensor before = net->parameters()[0].detach().clone();
  EXPECT_EQ(session->learning_rate(), 0.5);
  LOCKSTEP_ASSERT_OK(session->SetLearningRate(0.25));
  EXPECT_EQ(session->learning_rate(), 0.25);
  (net->forward(torch::tensor({{3.0f, 4.0f}})).sum() * 16).backward();
  LOCKSTEP_ASSERT_OK(session->Step({.max_grad_norm = 100, .loss_scale = 16}));
  EXPECT_EQ(session->stats().last_grad_norm, 5);
  EXPECT_TRUE(torch::equal(net->parameters()[0], before - 0.25 * torch::tensor({{3.0f, 4.0f}})));
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
