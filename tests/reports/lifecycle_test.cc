// Start, evaluation, checkpoint, resuming, accumulation, ranks that run out of data
// and ranks that are missing.
#include <cstdint>
#include <latch>
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/in_process/in_process_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Parameters of all kinds and buffers of all kinds.
struct MixedNet : torch::nn::Module {
  explicit MixedNet(int rank) {
    torch::manual_seed(100 + rank);
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5),
                                      torch::nn::Linear(5, 1)));
    body->ptr<torch::nn::LinearImpl>(0)->bias.requires_grad_(false);
    register_parameter("frozen", torch::randn({7}), /*requires_grad=*/false);
    register_parameter("odd", torch::randn({1, 13}));
    const at::Tensor table = torch::randn({6});
    register_buffer("table", table);
    register_buffer("same_table", table);
    register_buffer("strided", torch::randn({4, 3}).t());
    register_buffer("counter", torch::randint(1000, {2}, torch::kLong));
    register_buffer("empty", torch::zeros({0, 3}));
    register_buffer("mask", torch::randint(2, {70}, torch::kLong).to(torch::kBool));
  }

  torch::nn::Sequential body = nullptr;
};

std::vector<std::shared_ptr<MixedNet>> MixedNets(int ranks) {
  return OnRanks<MixedNet>(ranks, [](int rank) { return std::make_shared<MixedNet>(rank); });
}

std::vector<std::shared_ptr<TransportFactory>> AllTransports() {
  return {std::make_shared<InProcessFactory>(), std::make_shared<ShmFactory>(),
          std::make_shared<GlooFactory>(GlooOptions())};
}

// What an evaluation of the module gives.
at::Tensor Evaluate(BatchNormNet& net) {
  const torch::NoGradGuard no_grad;
  net.eval();
  const at::Tensor result = net.forward(SomeInput(50));
  net.train();
  return result;
}

// mmdetection#2539, detectron2#1297, maskrcnn-benchmark#692: "why is it False?" The
// default is what DistributedDataParallel does, and stated.
TEST(TheDefaultPolicy, BroadcastsAllFromTheLowestRankAtStartAndBeforeEachForward) {
  const SyncPolicy policy;
  EXPECT_TRUE(policy.broadcast_buffers);
  EXPECT_TRUE(policy.allow_list.empty() && policy.ignore_list.empty() && policy.rules.empty());
  EXPECT_EQ(policy.operation, Operation::kBroadcast);
  EXPECT_EQ(policy.root, Root(LowestRank{}));
  EXPECT_EQ(policy.schedule, (Schedule{.at_start = true, .every_forwards = 1}));
  EXPECT_TRUE(policy.broadcast_parameters_at_start);

  const auto nets = BufferNets(
      2, [](int rank) -> NamedBuffers { return {{"stat", torch::full({2}, 1.0f + rank)}}; });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::ones({2})));
    for (int step = 0; step < 3; ++step) {
      net.Fill("stat", 10 * step + session.rank());
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 10.0f * step)));
      net.Fill("stat", session.rank());
      net.Loss().backward();
      LOCKSTEP_RETURN_IF_ERROR(session.Step({}));
      // As in DDP each rank keeps its own update until the next forward.
      EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 1.0f * session.rank())));
    }
    return absl::OkStatus();
  }));
}

// ClassyVision#304, mmdetection#4582, pytorch-image-models#110 and #62: what was
// evaluated was not what the checkpoint held.
TEST(BeforeEvaluation, GivesAllRanksTheStatisticsOfTheRoot) {
  const auto nets = BatchNormNets(2);
  std::vector<at::Tensor> results(2);
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.schedule = {.every_forwards = 0, .before_evaluation = true}}}, nets,
      [&](Session& session, BatchNormNet& net) -> absl::Status {
        for (int step = 0; step < 3; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net, SomeInput(step + session.rank())));
        }
        EXPECT_TRUE(session.rank() == 0 ||
                    !torch::equal(net.norm->running_mean, nets[0]->norm->running_mean));
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeEvaluation());
        results[session.rank()] = Evaluate(net);
        return absl::OkStatus();
      }));
  EXPECT_TRUE(torch::equal(results[0], results[1]));
  EXPECT_TRUE(HoldTheSame(*nets[0], *nets[1]));
}

TEST(BeforeCheckpoint, GivesAllRanksTheStatisticsOfTheRoot) {
  const auto nets = BatchNormNets(2);
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.schedule = {.every_forwards = 0, .before_checkpoint = true}}}, nets,
      [&](Session& session, BatchNormNet& net) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net, SomeInput(session.rank())));
        const std::int64_t syncs = session.stats().sync.syncs;
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeEvaluation());
        EXPECT_EQ(session.stats().sync.syncs, syncs);
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeCheckpoint());
        EXPECT_EQ(session.stats().sync.syncs, syncs + 1);
        return absl::OkStatus();
      }));
  EXPECT_TRUE(HoldTheSame(*nets[0], *nets[1]));
}

// pytorch#48988, pytorch-lightning#9243: a hidden collective in evaluation mode.
TEST(AnEvaluationOnRankZeroOnly, DoesNotWaitForTheOthers) {
  const auto nets = BatchNormNets(2);
  const auto evaluate = [](Session& session, BatchNormNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeEvaluation());
    const torch::NoGradGuard no_grad;
    for (int batch = 0; batch < 3; ++batch) {
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      Evaluate(net);
    }
    return absl::OkStatus();
  };
  std::latch evaluated(1);
  LOCKSTEP_EXPECT_OK(RunAll({.operation_timeout = absl::Seconds(10)}, nets,
                            [&](Session& session, BatchNormNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net, SomeInput(session.rank())));
    if (session.rank() == 0) {
      const absl::Status status = evaluate(session, net);
      evaluated.count_down();
      LOCKSTEP_RETURN_IF_ERROR(status);
    } else {
      // The others do not come to any call before that is over.
      evaluated.wait();
    }
    return TrainStep(session, net, SomeInput(10 + session.rank()));
  }));
}

// pytorch#111138, pytorch#178054: one flag turned both off.
TEST(ForwardSyncsThatAreOff, LeaveTheSyncAtStartOn) {
  const auto nets = BufferNets(
      2, [](int rank) -> NamedBuffers { return {{"stat", torch::full({2}, 1.0f + rank)}}; });
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.broadcast_buffers = false}}, nets,
                            [](Session& session, BufferNet& net) -> absl::Status {
    EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::ones({2})));
    net.Fill("stat", 5 + session.rank());
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 5.0f + session.rank())));
    return absl::OkStatus();
  }));
}

TEST(ASyncAtStartThatIsOff, LeavesForwardSyncsOn) {
  const auto nets = BufferNets(
      2, [](int rank) -> NamedBuffers { return {{"stat", torch::full({2}, 1.0f + rank)}}; });
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.schedule = {.at_start = false}}}, nets,
                            [](Session& session, BufferNet& net) -> absl::Status {
    EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 1.0f + session.rank())));
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
    EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::ones({2})));
    return absl::OkStatus();
  }));
}

// fairseq#4238, speculators#926, pytorch#125177, algorithmic-efficiency#412: only
// rank 0 loads the checkpoint.
TEST(ACheckpointThatOnlyTheRootLoaded, ReachesAllRanksByOneBroadcastOfEach) {
  for (const auto& transports : AllTransports()) {
    const auto nets = MixedNets(2);
    MixedNet checkpoint(/*rank=*/77);
    LOCKSTEP_EXPECT_OK(RunAll(
        {.policy = OnCommandOnly(), .transports = transports}, nets,
        [&](Session& session, MixedNet& net) -> absl::Status {
          if (session.rank() == 0) {
            const torch::NoGradGuard no_grad;
            for (const auto& item : checkpoint.named_parameters()) {
              net.named_parameters()[item.key()].copy_(item.value());
            }
            for (const auto& item : checkpoint.named_buffers()) {
              net.named_buffers()[item.key()].copy_(item.value());
            }
          }
          LOCKSTEP_RETURN_IF_ERROR(session.BroadcastParameters(0));
          return session.BroadcastBuffers(0);
        }));
    for (const auto& net : nets) {
      EXPECT_TRUE(HoldTheSame(*net, checkpoint)) << transports->name();
    }
  }
}

// RamTorch#13: a broadcast passed over one kind of parameter, and nobody noticed.
TEST(AStart, MakesParametersAndBuffersOfEveryKindEqual) {
  for (const auto& transports : AllTransports()) {
    const auto nets = MixedNets(3);
    MixedNet root(/*rank=*/0);
    LOCKSTEP_EXPECT_OK(RunAll({.transports = transports}, nets,
                              [](Session&, MixedNet&) { return absl::OkStatus(); }));
    for (const auto& net : nets) EXPECT_TRUE(HoldTheSame(*net, root)) << transports->name();
  }
}

// The same report: what drifts apart all the same is found.
TEST(ACheckOfParameters, EndsTheEpochOnEveryRankAndNamesTheOneThatDrifted) {
  const auto nets = BufferNets(3, [](int) -> NamedBuffers { return {}; });
  for (const auto& net : nets) {
    net->register_parameter("lookup", torch::ones({3}), /*requires_grad=*/false);
  }
  const auto statuses =
      RunRanks({.policy = {.check_parameters_every_steps = 2}}, nets,
               [](Session& session, BufferNet& net) -> absl::Status {
                 if (session.rank() == 2) net.named_parameters()["lookup"][1] = 5;
                 LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
                 EXPECT_EQ(session.step(), 1);
                 return TrainStep(session, net);
               });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("'lookup'"), HasSubstr("rank 2")))));
}

// fairscale#1041: buffers were sent inside of no_sync(). DDP goes by the forward
// before: it sends in the first of a group and not in the last.
TEST(GradientAccumulation, OfKBatchesSyncsOnceBeforeTheForwardThatIsOutsideOfNoSync) {
  const auto nets = BufferNets(
      2, [](int) -> NamedBuffers { return {{"stat", torch::zeros({2})}}; });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    for (int step = 0; step < 3; ++step) {
      const std::int64_t syncs = session.stats().sync.syncs;
      net.Fill("stat", 1 + session.rank());
      for (int batch = 0; batch < 3; ++batch) {
        const auto no_sync = session.NoSync();
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
        net.Loss().backward();
      }
      EXPECT_EQ(session.stats().sync.syncs, syncs);
      EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 1.0f + session.rank())));
      LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
      net.Loss().backward();
      EXPECT_EQ(session.stats().sync.syncs, syncs + 1);
      EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::ones({2})));
      LOCKSTEP_RETURN_IF_ERROR(session.Step({.samples = 4, .loss = LossReduction::kSum}));
    }
    return absl::OkStatus();
  }));
}

// pytorch#65436, pytorch#160602, pytorch#60611, pytorch#61020: a rank that ran out
// of data did not shadow what the others do.
TEST(ARankThatRanOutOfData, TakesPartWithoutSamplesAndTheResultIsThatOfOneProcess) {
  constexpr int kSteps = 5;
  const auto batches_of = [](int rank) { return rank == 1 ? kSteps - 2 : kSteps; };
  const auto gradient = [](int step, int rank) {
    return torch::tensor({0.25f * static_cast<float>(step + 1), 0.5f * static_cast<float>(rank)});
  };
  const auto nets = BufferNets(
      2, [](int) -> NamedBuffers { return {{"seen", torch::zeros({1})}}; });
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.schedule = {.every_steps = 1}}}, nets,
      [&](Session& session, BufferNet& net) -> absl::Status {
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
          const bool has_data = step < batches_of(session.rank());
          if (has_data) {
            net.Fill("seen", 100 * session.rank() + step + 1);
            (net.weight() * gradient(step, session.rank())).sum().backward();
          } else {
            net.Loss().backward();  // a batch made up counts for nothing
          }
          LOCKSTEP_RETURN_IF_ERROR(session.Step({.samples = has_data ? 1 : 0}));
          EXPECT_EQ(net.buffer("seen").item<float>(), step + 1);
        }
        return absl::OkStatus();
      }));
  at::Tensor expected = torch::ones({2});
  for (int step = 0; step < kSteps; ++step) {
    const bool both = step < batches_of(1);
    expected -= 0.5f * (both ? (gradient(step, 0) + gradient(step, 1)) / 2 : gradient(step, 0));
  }
  for (const auto& net : nets) EXPECT_TRUE(torch::equal(net->weight(), expected));
}

// pytorch#89716, LibreYOLO#594: a forward on one rank only hangs. horovod#2216: so
// does a broadcast.
TEST(ACallOnOneRankOnly, EndsWithinItsDeadlineAndNamesWhoIsMissing) {
  for (const auto& transports : AllTransports()) {
    const auto nets = BufferNets(
        2, [](int) -> NamedBuffers { return {{"stat", torch::zeros({2})}}; });
    std::latch over(1);
    const auto statuses = RunRanks(
        {.policy = OnCommandOnly(), .transports = transports,
         .operation_timeout = absl::Seconds(3)},
        nets, [&](Session& session, BufferNet&) -> absl::Status {
          if (session.rank() == 0) {
            const absl::Status status = session.BroadcastBuffers(0);
            over.count_down();
            return status;
          }
          over.wait();
          return absl::OkStatus();
        });
    EXPECT_THAT(statuses[0], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("w1")))
        << transports->name();
    LOCKSTEP_EXPECT_OK(statuses[1]);
    // The module is usable without a session.
    nets[0]->Loss().backward();
    EXPECT_TRUE(torch::equal(nets[0]->weight().grad(), torch::ones({2})));
  }
}

// horovod#2216 again: one rank broadcasts while the other takes a step.
TEST(RanksInDifferentCalls, AreAllToldWhatEachOneIsIn) {
  const auto nets = BufferNets(
      2, [](int) -> NamedBuffers { return {{"stat", torch::zeros({2})}}; });
  const auto statuses = RunRanks(
      {.policy = OnCommandOnly(), .operation_timeout = absl::Seconds(10)}, nets,
      [](Session& session, BufferNet& net) -> absl::Status {
        if (session.rank() == 0) return session.SyncBuffers();
        net.Loss().backward();
        return session.Step({});
      });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("exchange on w0 (rank 0)"),
                                            HasSubstr("agree on w1 (rank 1)")))));
}

// horovod#392, #526, #1608, #1725: broadcasts of optimizer state fell over frozen
// parameters and over optimizers that have none.
TEST(AFrozenParameter, IsBroadcastAtStartAndLeftAloneBySgdWithoutState) {
  const auto nets = BufferNets(2, [](int) -> NamedBuffers { return {}; });
  for (int rank = 0; rank < 2; ++rank) {
    nets[rank]->register_parameter("frozen", torch::full({3}, 4.0f + rank),
                                   /*requires_grad=*/false);
  }
  LOCKSTEP_EXPECT_OK(RunAll({.optimizer = Sgd{.lr = 0.25}}, nets,
                            [](Session& session, BufferNet& net) -> absl::Status {
    EXPECT_EQ(session.stats().optimizer_bytes, 0);
    return TrainStep(session, net);
  }));
  for (const auto& net : nets) {
    EXPECT_TRUE(torch::equal(net->named_parameters()["frozen"], torch::full({3}, 4.0f)));
    EXPECT_TRUE(torch::equal(net->weight(), torch::full({2}, 0.75f)));
  }
}

}  // namespace
}  // namespace lockstep
