// Shapes, sizes and strides.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/reports/nets.h"
#include "tests/reports/world.h"
#include "torch/torch.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// What every rank says of a buffer `name` that is `on_w0` there and `on_w1` here.
auto SaysOnEveryRank(const std::string& name, const std::string& on_w0, const std::string& on_w1,
                     const std::string& manner = "broadcast from rank 0") {
  return Each(StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'" + name + "'"),
                             HasSubstr(on_w0 + " by " + manner + " on w0 (rank 0)"),
                             HasSubstr(on_w1 + " by " + manner + " on w1 (rank 1)"))));
}

absl::Status Nothing(Session&, BufferNet&) { return absl::OkStatus(); }

// CoCa-pytorch#17: masks and position embeddings cached at the length of the rank's
// own batch.
TEST(ACacheOfEachRanksOwnLength, IsAnErrorOnEveryRankThatNamesBothShapes) {
  const auto nets =
      BufferNets(2, [](int) -> NamedBuffers { return {{"mask", torch::zeros({4, 4})}}; });
  const auto statuses = RunRanks({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    const int length = 4 + session.rank();
    net.Reassign("mask", torch::full({length, length}, 1.0f * session.rank()));
    return TrainStep(session, net);
  });
  EXPECT_THAT(statuses, SaysOnEveryRank("mask", "float32[4, 4]", "float32[5, 5]"));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("mask"), torch::ones({5, 5})));
}

TEST(ACacheOfEachRanksOwnLength, IsLeftToEachRankOnceItIsIgnored) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"mask", torch::full({4 + rank}, 1.0f * rank)},
            {"mean", torch::full({2}, 1.0f * rank)}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.ignore_list = {"mask"}}}, nets,
                            [](Session& session, BufferNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    EXPECT_TRUE(torch::equal(net.buffer("mask"),
                             torch::full({4 + session.rank()}, 1.0f * session.rank())));
    EXPECT_TRUE(torch::equal(net.buffer("mean"), torch::zeros({2})));
    return absl::OkStatus();
  }));
}

// pytorch#44956, pytorch#43789: an observer is empty until it has seen data.
TEST(AnObserverThatOnlySomeRanksInitialised, IsAnErrorOnEveryRankThatNamesBothShapes) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"min_val", rank == 0 ? torch::zeros({2}) : torch::zeros({0})}};
  });
  EXPECT_THAT(RunRanks({}, nets, Nothing), SaysOnEveryRank("min_val", "float32[2]", "float32[0]"));
}

// nccl#147, nccl#1417: counts that differ hang, or give a wrong tail.
TEST(CountsThatDiffer, AreAnErrorOnEveryRankWhateverTheOperation) {
  for (const auto& [operation, manner] : std::vector<std::pair<Operation, std::string>>{
           {Operation::kBroadcast, "broadcast from rank 0"}, {Operation::kSum, "sum"},
           {Operation::kMean, "mean"}, {Operation::kMin, "min"}, {Operation::kMax, "max"}}) {
    const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
      return {{"table", torch::full({4 + rank}, 1.0f * rank)}};
    });
    SyncPolicy policy = OnCommandOnly();
    policy.operation = operation;
    const auto statuses = RunRanks({.policy = policy}, nets, [](Session& session, BufferNet&) {
      return session.SyncBuffers();
    });
    EXPECT_THAT(statuses, SaysOnEveryRank("table", "float32[4]", "float32[5]", manner));
    EXPECT_TRUE(torch::equal(nets[1]->buffer("table"), torch::ones({5})));
  }
}

// pytorch#73547, pytorch#74113, pytorch#76449: all ranks but rank 0 saw the error,
// and rank 0 hung.
TEST(AFrozenParameterThatOneRankLacks, IsAnErrorOnEveryRankTheRootIncluded) {
  const auto nets = BufferNets(3, [](int) -> NamedBuffers { return {}; });
  nets[1]->register_parameter("extra", torch::zeros({3}), /*requires_grad=*/false);
  EXPECT_THAT(
      RunRanks({}, nets, Nothing),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("'extra'"), HasSubstr("absent on w0 (rank 0)"),
                          HasSubstr("float32[3] by broadcast from rank 0 on w1 (rank 1)")))));
}

// The same of a parameter that is trained; a coordinator would turn both away
// before that.
TEST(AParameterThatOneRankLacks, IsAnErrorOnEveryRankTheRootIncluded) {
  const auto nets = BufferNets(3, [](int) -> NamedBuffers { return {}; });
  nets[1]->register_parameter("extra", torch::zeros({30}));
  EXPECT_THAT(RunRanks({}, nets, Nothing), Each(StatusIs(absl::StatusCode::kInvalidArgument)));
}

// pytorch#68407: a position encoding that was transposed before it was registered.
TEST(ATransposedBuffer, IsSyncedAndKeepsItsStrides) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    const at::Tensor positions = torch::arange(12).to(torch::kFloat).reshape({4, 3}) + 100 * rank;
    return {{"pe", positions.unsqueeze(0).transpose(0, 1)},
            {"t", positions.t()},
            {"expanded", torch::full({1, 3}, 1.0f * rank).expand({4, 3})}};
  });
  const std::vector<std::int64_t> strides[] = {nets[1]->buffer("pe").strides().vec(),
                                               nets[1]->buffer("t").strides().vec(),
                                               nets[1]->buffer("expanded").strides().vec()};
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    return TrainStep(session, net);
  }));
  const at::Tensor positions = torch::arange(12).to(torch::kFloat).reshape({4, 3});
  EXPECT_TRUE(torch::equal(nets[1]->buffer("pe"), positions.reshape({4, 1, 3})));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("t"), positions.t()));
  EXPECT_TRUE(torch::equal(nets[1]->buffer("expanded"), torch::zeros({4, 3})));
  EXPECT_EQ(nets[1]->buffer("pe").strides().vec(), strides[0]);
  EXPECT_EQ(nets[1]->buffer("t").strides().vec(), strides[1]);
  EXPECT_EQ(nets[1]->buffer("expanded").strides().vec(), strides[2]);
}

// pytorch#79043: a check for contiguity refused channels_last.
TEST(AChannelsLastBuffer, IsSyncedAndKeepsItsStrides) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    const at::Tensor image =
        torch::arange(2 * 3 * 4 * 5).to(torch::kFloat).reshape({2, 3, 4, 5}) * (1 - 2 * rank);
    return {{"image", image.contiguous(at::MemoryFormat::ChannelsLast)}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    return TrainStep(session, net);
  }));
  EXPECT_TRUE(nets[1]->buffer("image").is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(nets[1]->buffer("image").is_contiguous());
  EXPECT_TRUE(torch::equal(nets[1]->buffer("image"),
                           torch::arange(2 * 3 * 4 * 5).to(torch::kFloat).reshape({2, 3, 4, 5})));
}

// The same report: elements are matched by their indices, not by their places.
TEST(StridesThatDifferAmongRanks, AreKeptAndValuesGoToTheSameIndices) {
  for (const auto& [operation, factor] :
       std::vector<std::pair<Operation, int>>{{Operation::kBroadcast, 1}, {Operation::kSum, 3}}) {
    const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
      const at::Tensor image = torch::arange(24).to(torch::kFloat).reshape({1, 2, 3, 4});
      if (rank == 0) return {{"image", image.clone()}};
      return {{"image", (2 * image).contiguous(at::MemoryFormat::ChannelsLast)}};
    });
    SyncPolicy policy = OnCommandOnly();
    policy.operation = operation;
    LOCKSTEP_EXPECT_OK(RunAll({.policy = policy}, nets, [](Session& session, BufferNet&) {
      return session.SyncBuffers();
    }));
    const at::Tensor expected =
        torch::arange(24).to(torch::kFloat).reshape({1, 2, 3, 4}) * factor;
    for (const auto& net : nets) EXPECT_TRUE(torch::equal(net->buffer("image"), expected));
    EXPECT_TRUE(nets[0]->buffer("image").is_contiguous());
    EXPECT_TRUE(nets[1]->buffer("image").is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace
}  // namespace lockstep
