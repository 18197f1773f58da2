// What syncs cost: how often, in how many transfers, how many bytes.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"
#include "worker/transport/gloo/gloo_transport.h"

namespace lockstep {
namespace {

constexpr int kSteps = 10;

// What `steps` steps under `policy` cost rank 0, without the start.
SyncCounters CostOf(const SyncPolicy& policy, const std::function<NamedBuffers(int)>& buffers) {
  SyncCounters cost;
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = policy}, BufferNets(2, buffers),
      [&](Session& session, BufferNet& net) -> absl::Status {
        const SyncCounters start = session.stats().sync;
        for (int step = 0; step < kSteps; ++step) {
          LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
        }
        if (session.rank() != 0) return absl::OkStatus();
        cost = session.stats().sync;
        cost.syncs -= start.syncs;
        cost.transfers -= start.transfers;
        cost.bytes -= start.bytes;
        return absl::OkStatus();
      }));
  return cost;
}

NamedBuffers OneStatistic(int) { return {{"stat", torch::zeros({8})}}; }

// A table that training never changes, and a statistic that is the rank's own.
constexpr std::int64_t kTableBytes = 1000 * sizeof(float);
NamedBuffers TableAndStatistic(int rank) {
  return {{"rope", torch::arange(1000).to(torch::kFloat)},
          {"stat", torch::full({2}, 1.0f * rank)}};
}

// chainermn#62, flax#877: statistics are needed before validation only.
TEST(TheSchedule, DecidesHowManySyncsTenStepsHave) {
  EXPECT_EQ(CostOf({}, OneStatistic).syncs, 10);
  EXPECT_EQ(CostOf({.schedule = {.every_forwards = 3}}, OneStatistic).syncs, 3);
  EXPECT_EQ(CostOf({.schedule = {.every_forwards = 0, .every_steps = 5}}, OneStatistic).syncs, 2);
  EXPECT_EQ(CostOf({.schedule = {.every_forwards = 0, .before_evaluation = true}}, OneStatistic)
                .syncs,
            0);
  EXPECT_EQ(CostOf({.broadcast_buffers = false}, OneStatistic).syncs, 0);
}

// ultralytics#24410: hundreds of small broadcasts before each forward.
TEST(ASyncOfManyBuffers, IsOneTransferForEachOperationAndRoot) {
  const auto buffers = [](int) {
    NamedBuffers buffers;
    for (int layer = 0; layer < 53; ++layer) {
      const std::string prefix = "layer" + std::to_string(layer) + "_";
      buffers.emplace_back(prefix + "running_mean", torch::zeros({16}));
      buffers.emplace_back(prefix + "running_var", torch::ones({16}));
      buffers.emplace_back(prefix + "num_batches_tracked", torch::zeros({}, torch::kLong));
    }
    return buffers;
  };
  constexpr std::int64_t kBytes = 53 * (2 * 16 * sizeof(float) + sizeof(std::int64_t));
  const SyncCounters broadcast = CostOf({}, buffers);
  EXPECT_EQ(broadcast.last_transfers, 1);
  EXPECT_EQ(broadcast.last_bytes, kBytes);
  EXPECT_EQ(broadcast.transfers, kSteps);
  EXPECT_EQ(broadcast.bytes, kSteps * kBytes);
  const SyncCounters mixed =
      CostOf({.rules = {{.pattern = "*_num_batches_tracked", .operation = Operation::kMax}},
              .operation = Operation::kMean},
             buffers);
  EXPECT_EQ(mixed.last_transfers, 2);
  EXPECT_EQ(mixed.last_bytes, kBytes);
}

// minimind#855: rotary tables were sent again before each forward. Three ways out.
TEST(ATableThatNeverChanges, IsNotSentAgainIfUnchangedBuffersAreSkipped) {
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.skip_unchanged = true}}, BufferNets(2, TableAndStatistic),
      [](Session& session, BufferNet& net) -> absl::Status {
        EXPECT_EQ(session.stats().sync.bytes, kTableBytes + 8);
        for (int step = 1; step <= kSteps; ++step) {
          net.Fill("stat", step + session.rank());
          LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
          EXPECT_EQ(session.stats().sync.bytes, kTableBytes + 8 * (step + 1));
          EXPECT_EQ(session.stats().sync.skipped_bytes, kTableBytes * step);
          EXPECT_TRUE(torch::equal(net.buffer("stat"), torch::full({2}, 1.0f * step)));
        }
        // A change on one rank, not the root, is seen by all.
        if (session.rank() == 1) net.Fill("rope", 5);
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        EXPECT_EQ(session.stats().sync.last_bytes, kTableBytes);
        EXPECT_TRUE(torch::equal(net.buffer("rope"), torch::arange(1000).to(torch::kFloat)));
        return absl::OkStatus();
      }));
}

TEST(ATableThatNeverChanges, IsNotSentAgainIfItIsIgnoredOrOnAScheduleOfItsOwn) {
  EXPECT_EQ(CostOf({}, TableAndStatistic).bytes, kSteps * (kTableBytes + 8));
  EXPECT_EQ(CostOf({.ignore_list = {"rope"}}, TableAndStatistic).bytes, kSteps * 8);
  EXPECT_EQ(CostOf({.rules = {{.pattern = "rope", .schedule = Schedule{.every_forwards = 0}}}},
                   TableAndStatistic)
                .bytes,
            kSteps * 8);
}

// fairscale#499, fairscale#512: only the last of many Gloo handles was waited for.
TEST(ManySmallBuffers, AllArriveOverGloo) {
  constexpr int kBuffers = 300;
  const auto nets = BufferNets(2, [](int rank) {
    NamedBuffers buffers;
    for (int i = 0; i < kBuffers; ++i) {
      buffers.emplace_back("b" + std::to_string(i), torch::full({1 + i % 3}, 1000.0f * rank + i));
    }
    return buffers;
  });
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = OnCommandOnly(), .transports = std::make_shared<GlooFactory>(GlooOptions())}, nets,
      [](Session& session, BufferNet&) { return session.BroadcastBuffers(1); }));
  for (const auto& net : nets) {
    for (int i = 0; i < kBuffers; ++i) {
      EXPECT_TRUE(torch::equal(net->buffer("b" + std::to_string(i)),
                               torch::full({1 + i % 3}, 1000.0f + i)))
          << i;
    }
  }
}

// No public report.
TEST(AWorldOfOneRank, MovesNothing) {
  const auto nets = BufferNets(1, OneStatistic);
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.schedule = {.every_steps = 1, .before_evaluation = true}}},
                            nets, [](Session& session, BufferNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    LOCKSTEP_RETURN_IF_ERROR(session.BeforeEvaluation());
    LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    LOCKSTEP_RETURN_IF_ERROR(session.BroadcastBuffers(0));
    EXPECT_EQ(session.stats().sync, SyncCounters());
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace lockstep
