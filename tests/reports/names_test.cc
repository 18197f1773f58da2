// Which buffers there are: reassigned, late, missing, under two names, not ready.
#include <memory>
#include <string>
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

// Two parts that hold one table.
struct SharedTableNet : torch::nn::Module {
  SharedTableNet() {
    const at::Tensor table = torch::zeros({6});
    a = register_module("a", std::make_shared<BufferNet>(NamedBuffers{{"table", table}}));
    b = register_module("b", std::make_shared<BufferNet>(NamedBuffers{{"table", table}}));
  }

  std::shared_ptr<BufferNet> a;
  std::shared_ptr<BufferNet> b;
};

// Nothing but a buffer, in a part that can be replaced as a whole.
struct CounterPart : torch::nn::Module {
  explicit CounterPart(double value) {
    register_buffer("count", torch::full({2}, static_cast<float>(value)));
  }
};

struct NetOfParts : BufferNet {
  NetOfParts() : BufferNet({}) { register_module("part", std::make_shared<CounterPart>(0)); }
  void Replace(double value) { replace_module("part", std::make_shared<CounterPart>(value)); }
};

// As LibTorch's lazy modules hold a tensor before their first forward: a shape, no
// memory.
at::Tensor WithoutMemory() {
  at::Tensor tensor = torch::empty({0});
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({2});
  return tensor;
}

// pytorch#63916: `self.buf = self.buf + 1` left the sync with the old tensor.
TEST(AReassignedBuffer, IsFollowedByItsNameAtEachSync) {
  const auto nets =
      BufferNets(3, [](int) -> NamedBuffers { return {{"count", torch::zeros({2})}}; });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    for (int step = 1; step <= 3; ++step) {
      if (session.rank() == 0) net.Reassign("count", net.buffer("count") + 1);
      LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
      EXPECT_TRUE(torch::equal(net.buffer("count"), torch::full({2}, 1.0f * step)));
    }
    return absl::OkStatus();
  }));
}

TEST(ABufferOfAPartThatWasReplaced, IsFollowedByItsName) {
  const auto nets = OnRanks<NetOfParts>(2, [](int) { return std::make_shared<NetOfParts>(); });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, NetOfParts& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    net.Replace(7 + session.rank());
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    EXPECT_TRUE(torch::equal(net.buffer("part.count"), torch::full({2}, 7.0f)));
    return absl::OkStatus();
  }));
}

// pytorch#2428, pytorch#2875: IndexError.
TEST(AModelWithoutBuffers, TrainsAndItsSyncsMoveNothing) {
  const auto nets = BufferNets(2, [](int) -> NamedBuffers { return {}; });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    LOCKSTEP_RETURN_IF_ERROR(session.BroadcastBuffers(1));
    EXPECT_EQ(session.stats().sync, SyncCounters());
    return absl::OkStatus();
  }));
}

// Model-Optimizer#2342: sizes differ and the ranks hang.
TEST(ABufferThatSomeRanksRegisteredLate, IsAnErrorOnEveryRankThatNamesItAndTouchesNothing) {
  const auto nets =
      BufferNets(3, [](int) -> NamedBuffers { return {{"scale", torch::zeros({2})}}; });
  const auto statuses =
      RunRanks({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
        net.Fill("scale", session.rank());
        if (session.rank() == 1) net.register_buffer("amax", torch::ones({3}));
        return TrainStep(session, net);
      });
  EXPECT_THAT(
      statuses,
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("'amax'"), HasSubstr("absent on w0 (rank 0)"),
                          HasSubstr("float32[3] by broadcast from rank 0 on w1 (rank 1)")))));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(torch::equal(nets[rank]->buffer("scale"), torch::full({2}, 1.0f * rank)));
  }
}

TEST(ABufferThatSomeRanksRegisteredLate, IsNoTroubleOnceItIsIgnored) {
  const auto nets = BufferNets(3, [](int rank) -> NamedBuffers {
    NamedBuffers buffers = {{"scale", torch::full({2}, 1.0f * rank)}};
    if (rank == 1) buffers.push_back({"amax", torch::ones({3})});
    return buffers;
  });
  LOCKSTEP_EXPECT_OK(RunAll({.policy = {.ignore_list = {"amax"}}}, nets,
                            [](Session& session, BufferNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    EXPECT_TRUE(torch::equal(net.buffer("scale"), torch::zeros({2})));
    return absl::OkStatus();
  }));
}

// pytorch#68803: one rank finishes, the others hang. A job has one policy, so this
// takes a coordinator that is broken.
TEST(IgnoreListsThatDifferAmongRanks, AreAnErrorOnEveryRankThatNamesTheBuffer) {
  const auto nets = BufferNets(3, [](int) -> NamedBuffers {
    return {{"kept", torch::zeros({2})}, {"mask", torch::zeros({4})}};
  });
  const auto statuses = RunRanks({.policy_of = {{2, {.ignore_list = {"mask"}}}}}, nets,
                                 [](Session&, BufferNet&) { return absl::OkStatus(); });
  EXPECT_THAT(statuses,
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("'mask'"), HasSubstr("float32[4] by broadcast"),
                                  HasSubstr("absent on w2 (rank 2)")))));
}

// horovod#1271, horovod#2241: names that differ are a stall.
TEST(NamesThatDifferAmongRanks, AreAnErrorOnEveryRankThatNamesThem) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{rank == 0 ? "first" : "second", torch::zeros({2})}};
  });
  const auto statuses =
      RunRanks({}, nets, [](Session&, BufferNet&) { return absl::OkStatus(); });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'first'"))));
}

// torchrec#2103: a second list quietly overwrote the first.
TEST(IgnoreLists, AreReplacedWithTheWholePolicySoThatNoneIsLostByAccident) {
  const auto nets = BufferNets(2, [](int) -> NamedBuffers {
    return {{"a", torch::zeros({1})}, {"b", torch::zeros({1})}, {"c", torch::zeros({1})}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    // The own values of rank 1 that outlive a step under the policy in force.
    const auto kept = [&]() -> absl::StatusOr<std::string> {
      for (const char* name : {"a", "b", "c"}) net.Fill(name, session.rank());
      LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
      std::string names;
      for (const char* name : {"a", "b", "c"}) {
        if (net.buffer(name).item<float>() == 1) names += name;
      }
      return names;
    };
    const auto revise = [&](const std::vector<std::string>& ignored) -> absl::Status {
      SyncPolicy policy = session.policy();
      policy.ignore_list = ignored;
      LOCKSTEP_RETURN_IF_ERROR(session.RevisePolicy(policy, "a test").status());
      return TrainStep(session, net);  // in force behind it
    };
    const bool other = session.rank() == 1;
    LOCKSTEP_RETURN_IF_ERROR(revise({"a"}));
    LOCKSTEP_ASSIGN_OR_RETURN(std::string names, kept());
    EXPECT_EQ(names, other ? "a" : "");

    std::vector<std::string> more = session.policy().ignore_list;
    more.push_back("b");
    LOCKSTEP_RETURN_IF_ERROR(revise(more));
    LOCKSTEP_ASSIGN_OR_RETURN(names, kept());
    EXPECT_EQ(names, other ? "ab" : "");

    LOCKSTEP_RETURN_IF_ERROR(revise({"b"}));
    LOCKSTEP_ASSIGN_OR_RETURN(names, kept());
    EXPECT_EQ(names, other ? "b" : "");
    return absl::OkStatus();
  }));
}

// pytorch#98882, torchtitan#2435: the two names parted company.
TEST(ATensorWithTwoNames, IsSentOnceAndStaysOneTensor) {
  const auto nets = OnRanks<SharedTableNet>(2, [](int rank) {
    auto net = std::make_shared<SharedTableNet>();
    net->a->Fill("table", 3 + rank);
    return net;
  });
  LOCKSTEP_EXPECT_OK(RunAll({.policy = OnCommandOnly()}, nets,
                            [](Session& session, SharedTableNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
    EXPECT_TRUE(net.a->buffer("table").is_same(net.b->buffer("table")));
    EXPECT_TRUE(torch::equal(net.b->buffer("table"), torch::full({6}, 3.0f)));
    EXPECT_EQ(session.stats().sync.transfers, 1);
    EXPECT_EQ(session.stats().sync.bytes, 6 * sizeof(float));
    return absl::OkStatus();
  }));
}

// The same, by a sum: done twice it would be 14.
TEST(ATensorWithTwoNames, IsSummedOnce) {
  const auto nets = OnRanks<SharedTableNet>(2, [](int rank) {
    auto net = std::make_shared<SharedTableNet>();
    net->a->Fill("table", 3 + rank);
    return net;
  });
  SyncPolicy policy = OnCommandOnly();
  policy.operation = Operation::kSum;
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = policy}, nets, [](Session& session, SharedTableNet& net) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        EXPECT_TRUE(torch::equal(net.b->buffer("table"), torch::full({6}, 7.0f)));
        return absl::OkStatus();
      }));
}

// And where the names hold two shapes of one memory: DDP sends both.
TEST(TwoShapesOfOneMemory, AreSummedOnce) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    const at::Tensor table = torch::full({6}, 3.0f + rank);
    return {{"flat", table}, {"square", table.view({2, 3})}, {"tail", table.slice(0, 4)}};
  });
  SyncPolicy policy = OnCommandOnly();
  policy.operation = Operation::kSum;
  LOCKSTEP_EXPECT_OK(RunAll({.policy = policy}, nets, [](Session& session, BufferNet&) {
    return session.SyncBuffers();
  }));
  for (const auto& net : nets) {
    EXPECT_TRUE(torch::equal(net->buffer("flat"), torch::full({6}, 7.0f)));
    EXPECT_EQ(net->buffer("tail").const_data_ptr<float>(),
              net->buffer("square").const_data_ptr<float>() + 4);
  }
}

// pytorch#51548: LazyBatchNorm's buffers before the first forward.
TEST(ABufferThatIsNotInitialised, IsRefusedByNameWhenItIsSelected) {
  const auto nets = BufferNets(2, [](int) -> NamedBuffers {
    return {{"ready", torch::zeros({2})}, {"lazy", WithoutMemory()}};
  });
  const auto statuses =
      RunRanks({}, nets, [](Session&, BufferNet&) { return absl::OkStatus(); });
  EXPECT_THAT(statuses, Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("'lazy'"), HasSubstr("exclude it")))));
}

TEST(ABufferThatIsNotInitialised, TakesPartOnceItHasValues) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"ready", torch::full({2}, 1.0f * rank)}, {"lazy", WithoutMemory()}};
  });
  SyncPolicy policy = OnCommandOnly();
  policy.ignore_list = {"lazy"};
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = policy}, nets, [](Session& session, BufferNet& net) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        EXPECT_TRUE(torch::equal(net.buffer("ready"), torch::zeros({2})));
        net.Reassign("lazy", torch::full({2}, 1.0f * session.rank()));
        LOCKSTEP_RETURN_IF_ERROR(session.RevisePolicy(OnCommandOnly(), "it is there").status());
        LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
        LOCKSTEP_RETURN_IF_ERROR(session.SyncBuffers());
        EXPECT_TRUE(torch::equal(net.buffer("lazy"), torch::zeros({2})));
        return absl::OkStatus();
      }));
}

// No public report.
TEST(ABufferOnTheMetaDevice, IsRefusedByNameUnlessItIsIgnored) {
  const auto make = [](int) -> NamedBuffers {
    return {{"ready", torch::zeros({2})}, {"shadow", torch::zeros({2}, torch::kMeta)}};
  };
  const auto body = [](Session& session, BufferNet& net) { return TrainStep(session, net); };
  EXPECT_THAT(RunRanks({}, BufferNets(2, make), body),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("'shadow'"), HasSubstr("meta device")))));
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = {.ignore_list = {"shadow"}}}, BufferNets(2, make), body));
}

// No public report. A look at the drift ends no epoch that trains.
TEST(ABufferOnTheMetaDevice, IsLeftOutOfTheDrift) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"ready", torch::full({2}, 1.0f * rank)}, {"shadow", torch::zeros({2}, torch::kMeta)}};
  });
  SyncPolicy policy = OnCommandOnly();
  policy.ignore_list = {"shadow"};
  LOCKSTEP_EXPECT_OK(
      RunAll({.policy = policy}, nets, [](Session& session, BufferNet&) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const BufferDrift drift, session.MeasureBufferDrift());
        EXPECT_EQ(drift.buffer, "ready");
        EXPECT_EQ(drift.largest, 1);
        return absl::OkStatus();
      }));
}

// No public report.
TEST(ABufferThatIsUndefined, IsLeftOut) {
  const auto nets = BufferNets(2, [](int rank) -> NamedBuffers {
    return {{"none", at::Tensor()}, {"some", torch::full({2}, 1.0f * rank)}};
  });
  LOCKSTEP_EXPECT_OK(RunAll({}, nets, [](Session& session, BufferNet& net) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(TrainStep(session, net));
    EXPECT_FALSE(net.named_buffers().contains("none"));
    EXPECT_TRUE(torch::equal(net.buffer("some"), torch::zeros({2})));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace lockstep
