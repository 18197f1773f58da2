// What the ranks' values become: not everything is a broadcast.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

at::Tensor Scalar(double value) { return torch::full({1}, static_cast<float>(value)); }

double ValueOf(const BufferNet& net, const std::string& name) {
  return net.buffer(name).item<double>();
}

// Codes of a vector quantizer: the nearest of two for each row.
struct CodebookNet : BufferNet {
  CodebookNet()
      : BufferNet({{"codes", torch::tensor({{0.0f, 0.0f}, {8.0f, 8.0f}})},
                   {"count", torch::zeros({2})},
                   {"sum", torch::zeros({2, 2})}}) {}

  // The statistics of one batch, in place of those of the last.
  void Gather(const at::Tensor& rows) {
    const torch::NoGradGuard no_grad;
    const at::Tensor nearest = torch::cdist(rows, buffer("codes")).argmin(1);
    const at::Tensor one_hot = torch::one_hot(nearest, 2).to(torch::kFloat);
    buffer("count").copy_(one_hot.sum(0));
    buffer("sum").copy_(one_hot.t().matmul(rows));
  }
  void MoveCodes() {
    const torch::NoGradGuard no_grad;
    const at::Tensor means = buffer("sum") / buffer("count").clamp_min(1).unsqueeze(1);
    buffer("codes").mul_(0.5).add_(means, 0.5);
  }
};

at::Tensor Rows(std::int64_t seed) {
  return ((torch::arange(12) * 7 + seed * 5) % 13).to(torch::kFloat).reshape({6, 2});
}

// pytorch#63041: counts are to be added up, not broadcast.
TEST(OneSync, TreatsEachBufferByItsOwnOperation) {
  const auto nets = BufferNets(3, [](int rank) -> NamedBuffers {
    NamedBuffers buffers;
    for (const char* name : {"broadcast", "from_2", "sum", "mean", "min", "max", "none"}) {
      buffers.emplace_back(name, Scalar(1 + 2 * rank));
    }
    return buffers;
  });
  SyncPolicy policy = OnCommandOnly();
  policy.rules = {{.pattern = "from_2", .root = RootWorker{"w2"}},
                  {.pattern = "sum", .operation = Operation::kSum},
                  {.pattern = "mean", .operation = Operation::kMean},
                  {.pattern = "min", .operation = Operation::kMin},
                  {.pattern = "max", .operation = Operation::kMax},
                  {.pattern = "none", .operation = Operation::kNone}};
  LOCKSTEP_EXPECT_OK(RunAll({.policy = policy}, nets, [](Session& session, BufferNet& net) {
    net.Fill("min", 3 - session.rank());
    const absl::Status status = session.SyncBuffers();
    EXPECT_EQ(session.stats().sync.syncs, 1);
    return status;
  }));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ValueOf(*nets[rank], "broadcast"), 1);
    EXPECT_EQ(ValueOf(*nets[rank], "from_2"), 5);
    EXPECT_EQ(ValueOf(*nets[rank], "sum"), 9);
    EXPECT_EQ(ValueOf(*nets[rank], "mean"), 3);
    EXPECT_EQ(ValueOf(*nets[rank], "min"), 1);
    EXPECT_EQ(ValueOf(*nets[rank], "max"), 5);
    EXPECT_EQ(ValueOf(*nets[rank], "none"), 1 + 2 * rank);
  }
}

// The same report: positive and negative counts of a metric. The first that are
// broadcast by the default schedule would lose the other ranks' counts.
TEST(CountsThatAreSummed, EqualThoseOfOneProcessThatSawAllData) {
  const auto nets = BufferNets(
      2, [](int) -> NamedBuffers { return {{"positive", torch::zeros({1}, torch::kLong)}}; });
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.operation = Operation::kSum,
                  .schedule = {.every_forwards = 0, .before_checkpoint = true}}},
      nets, [](Session& session, BufferNet& net) -> absl::Status {
        for (int step = 0; step < 4; ++step) {
          net.buffer("positive").add_(session.rank() == 0 ? 1 : 10);
          LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
        }
        return session.BeforeCheckpoint();
      }));
  for (const auto& net : nets) EXPECT_EQ(ValueOf(*net, "positive"), 44);
}

// torchebm#210: replay buffers are each rank's own.
TEST(ABufferOfOperationNone, IsNeverTouchedNorComparedNotEvenAtStart) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"replay", torch::full({2 + rank}, 1.0f * rank)}, {"mean", Scalar(rank)}};
  });
  const std::uint32_t version = nets[1]->buffer("replay")._version();
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.rules = {{.pattern = "replay", .operation = Operation::kNone}},
                  .schedule = {.every_steps = 1, .before_evaluation = true,
                               .before_checkpoint = true}}},
      nets, [](Session& session, BufferNet& net) -> absl::Status {
        EXPECT_EQ(ValueOf(net, "mean"), 0);
        LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeEvaluation());
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeCheckpoint());
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        return session.BroadcastBuffers(0);
      }));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("replay"), torch::ones({3})));
  EXPECT_EQ(nets[1]->buffer("replay")._version(), version);
}

// vector-quantize-pytorch#17, espnet#6284, encodec-pytorch#15: codebooks diverge, or
// a broadcast throws the other ranks' statistics away.
TEST(AnEmaCodebook, WhoseStatisticsAreSummedEqualsThatOfOneProcessWithTheLargeBatch) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 4;
  const auto nets =
      OnRanks<CodebookNet>(kRanks, [](int) { return std::make_shared<CodebookNet>(); });
  SyncPolicy policy = {.schedule = {.every_forwards = 0}};
  policy.rules = {{.pattern = "count", .operation = Operation::kSum},
                  {.pattern = "sum", .operation = Operation::kSum}};
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = policy}, nets, [](Session& session, CodebookNet& net) -> absl::Status {
        for (int step = 0; step < kSteps; ++step) {
          net.Gather(Rows(10 * step + session.rank()));
          LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
          net.MoveCodes();
        }
        return absl::OkStatus();
      }));
  CodebookNet whole;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < kRanks; ++rank) parts.push_back(Rows(10 * step + rank));
    whole.Gather(torch::cat(parts));
    whole.MoveCodes();
  }
  for (const auto& net : nets) {
    EXPECT_TRUE(torch::equal(net->buffer("count"), whole.buffer("count")));
    EXPECT_TRUE(torch::allclose(net->buffer("codes"), whole.buffer("codes"), 1e-5, 1e-6));
    EXPECT_TRUE(torch::equal(net->buffer("codes"), nets[0]->buffer("codes")));
  }
}

// pytorch#85627: observers of quantization-aware training need the range over all
// ranks.
TEST(ObserversByMinAndMax, HoldTheRangeOverAllRanks) {
  const auto nets = BufferNets(3, [](int) -> NamedBuffers {
    return {{"min_val", Scalar(0)}, {"max_val", Scalar(0)}};
  });
  LOCKSTEP_EXPECT_OK(RunAll(
      {.policy = {.rules = {{.pattern = "*min_val", .operation = Operation::kMin},
                            {.pattern = "*max_val", .operation = Operation::kMax}}}},
      nets, [](Session& session, BufferNet& net) -> absl::Status {
        const double lows[] = {-2, -7, -1};
        const double highs[] = {3, 1, 9};
        net.Fill("min_val", lows[session.rank()]);
        net.Fill("max_val", highs[session.rank()]);
        return TrainStep(session, net);
      }));
  for (const auto& net : nets) {
    EXPECT_EQ(ValueOf(*net, "min_val"), -7);
    EXPECT_EQ(ValueOf(*net, "max_val"), 9);
  }
}

// vector-quantize-pytorch#17 once more: statistics of unequal batches. No rank's
// count for more than its samples.
TEST(AMeanBySamples, EqualsTheMeanOverAllSamplesThoughRanksHadUnequalBatches) {
  const auto nets =
      BufferNets(3, [](int) -> NamedBuffers { return {{"mean", Scalar(0)}}; });
  SyncPolicy policy = OnCommandOnly();
  policy.operation = Operation::kMeanBySamples;
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = policy}, nets, [](Session& session, BufferNet& net) -> absl::Status {
        const std::int64_t samples[] = {6, 2, 0};
        const double means[] = {1, 9, 1000};
        net.Fill("mean", means[session.rank()]);
        LOCKSTEP_RETURN_IF_ERROR(session.BeforeForward());
        net.Loss().backward();
        LOCKSTEP_RETURN_IF_ERROR(session.Step({.samples = samples[session.rank()]}));
        return session.SyncBuffers();
      }));
  for (const auto& net : nets) EXPECT_EQ(ValueOf(*net, "mean"), 3);
}

// No public report: with momentum None batch norm weighs by num_batches_tracked, so
// statistics without their counter are wrong from the next batch on.
TEST(ACumulativeBatchNorm, GoesOnRightlyFromStatisticsThatCameWithTheirCounter) {
  const auto options = torch::nn::BatchNorm1dOptions(2).momentum(c10::nullopt);
  const auto make = [&](int) { return std::make_shared<BatchNormNet>(options); };
  // Whether rank 1 goes on as rank 0 does, after one batch and three before the sync.
  const auto goes_on_alike = [&](const SyncPolicy& policy) {
    const auto nets = OnRanks<BatchNormNet>(2, make);
    LOCKSTEP_EXPECT_OK(RunAll({.policy = policy}, nets,
                              [](Session& session, BatchNormNet& net) -> absl::Status {
      for (int batch = 0; batch < 1 + 2 * session.rank(); ++batch) {
        net.forward(SomeInput(batch + session.rank()));
      }
      LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
      net.forward(SomeInput(20));
      return absl::OkStatus();
    }));
    BatchNormNet reference(options);
    reference.forward(SomeInput(0));
    reference.forward(SomeInput(20));
    EXPECT_TRUE(BuffersAreEqual(*nets[0], reference));
    return BuffersAreEqual(*nets[1], reference);
  };
  SyncPolicy policy = OnCommandOnly();
  EXPECT_TRUE(goes_on_alike(policy));
  policy.ignore_list = {"**.num_batches_tracked"};
  EXPECT_FALSE(goes_on_alike(policy));
}

}  // namespace
}  // namespace lockstep
