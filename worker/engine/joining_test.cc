// From attending to a started epoch, and leaving it.
#include "worker/engine/joining.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

ThreadedWorld& AddTensors(ThreadedWorld& world) {
  for (int rank = 0; rank < world.size(); ++rank) {
    world.model(rank).AddParameter("w", std::vector<float>(40, 1));
    world.model(rank).AddBuffer<float>("b", {1});
  }
  return world;
}

// A factory whose first attempts fail with what a test says.
class FaultTransportFactory final : public TransportFactory {
 public:
  FaultTransportFactory(TransportFactory* base, std::vector<absl::Status> first)
      : base_(base), first_(std::move(first)) {}
  std::string name() const override { return base_->name(); }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    if (attempts_ < first_.size()) return first_[attempts_++];
    return base_->Create(group, exchange);
  }

 private:
  TransportFactory* const base_;
  const std::vector<absl::Status> first_;
  std::size_t attempts_ = 0;
};

TEST(Join, TellsTheCoordinatorThatItIsReadyWithThePlan) {
  ThreadedWorld world(2);
  AddTensors(world).Propose({});
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, AdamW{}));
    const Engine& engine = world.engine(rank);
    EXPECT_EQ(engine.rank(), rank);
    EXPECT_EQ(engine.world_size(), 2);
    EXPECT_EQ(engine.epoch(), Epoch(1));
    EXPECT_EQ(engine.revision(), Revision(1));
    EXPECT_EQ(engine.step(), 0);
    const std::vector<Ready> ready = world.link(rank).ready();
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready[0].plan_digest, PlanShards(*world.model(rank).Describe(), 2)->Digest());
    EXPECT_EQ(world.link(rank).progress().back().phase, Phase::kTraining);
  });
}

TEST(Join, WaitsForTheNextProposalWhenAnEpochDoesNotStart) {
  using Spoil = std::function<void(ThreadedWorld&, int)>;
  const absl::Status over = absl::AbortedError("epoch 1 is over: w9 is missing");
  const std::vector<Spoil> spoils = {
      [&](ThreadedWorld& world, int rank) { world.link(rank).RefuseStart(over); },
      [&](ThreadedWorld& world, int rank) {
        world.link(rank).RefuseStart(absl::DeadlineExceededError("no start"));
      },
  };
  for (const Spoil& spoil : spoils) {
    ThreadedWorld world(2);
    AddTensors(world).Propose({}, Epoch(1));
    world.Propose({}, Epoch(2));
    world.Run([&](int rank) {
      spoil(world, rank);
      LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}));
      EXPECT_EQ(world.engine(rank).epoch(), Epoch(2));
      EXPECT_EQ(world.link(rank).ready().size(), 2u);
      LOCKSTEP_EXPECT_OK(world.engine(rank).Step({}));
    });
  }
}

TEST(Join, WaitsForTheNextProposalWhenTheTransportDoesNotForm) {
  for (const absl::Status& fault :
       {absl::AbortedError("over"), absl::DeadlineExceededError("w1 did not come"),
        absl::UnavailableError("w1 is gone")}) {
    ThreadedWorld world(2);
    AddTensors(world).Propose({}, Epoch(1));
    world.Propose({}, Epoch(2));
    world.Run([&](int rank) {
      FaultTransportFactory transports(world.transports(), {fault});
      LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}, &transports));
      EXPECT_EQ(world.engine(rank).epoch(), Epoch(2));
      LOCKSTEP_EXPECT_OK(world.engine(rank).Step({}));
    });
  }
}

TEST(Join, GivesUpOnErrorsThatTheNextProposalWouldNotMend) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({}, Epoch(1));
  world.Propose({}, Epoch(2));
  FaultTransportFactory transports(world.transports(),
                                   {absl::ResourceExhaustedError("no memory")});
  EXPECT_THAT(world.Join(0, Sgd{}, &transports),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_FALSE(world.model(0).adopted());
  // The coordinator learns of it at once, and through it the peers.
  EXPECT_EQ(world.link(0).left(), absl::ResourceExhaustedError("no memory"));
}

// Waits for peers until it is aborted.
class LonelyTransportFactory final : public TransportFactory {
 public:
  LonelyTransportFactory(TransportFactory* base, std::function<void()> on_wait)
      : base_(base), on_wait_(std::move(on_wait)) {}
  std::string name() const override { return base_->name(); }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                              base_->Create(group, exchange));
    group.on_forming(transport.get());
    on_wait_();
    const absl::Status status = transport->Agree({}).status();
    group.on_forming(nullptr);
    return status;
  }

 private:
  TransportFactory* const base_;
  const std::function<void()> on_wait_;
};

TEST(Join, TheEndOfAnEpochReachesATransportThatIsForming) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({}, Epoch(1));
  LonelyTransportFactory transports(world.transports(), [&] {
    world.link(0).AbortEpoch(absl::UnavailableError("w1 cannot open the segment"));
  });
  EXPECT_THAT(world.Join(0, Sgd{}, &transports),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("w1 cannot open the segment")));
}

TEST(Join, SaysWhoIsMissingAndWhatFailedBefore) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({}, Epoch(1));
  world.link(0).RefuseStart(absl::AbortedError("w7 did not answer"));
  EXPECT_THAT(world.Join(0, Sgd{}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("waits for w9"), HasSubstr("w7 did not answer"))));
  EXPECT_FALSE(world.model(0).adopted());
}

TEST(Join, RefusesAPlanThatItDoesNotCompute) {
  ThreadedWorld world(2);
  AddTensors(world).Propose({});
  world.model(1).AddParameter("extra", {1});
  world.operation_timeout = absl::Milliseconds(50);
  EXPECT_THAT(world.Join(1, Sgd{}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shard plan")));
  EXPECT_TRUE(world.link(1).ready().empty());
}

TEST(Join, RefusesAnEpochItIsNoMemberOf) {
  ThreadedWorld world(2);
  AddTensors(world).Propose({});
  EngineOptions options = world.OptionsOf(1);
  options.worker = "w5";
  EXPECT_THAT(
      Engine::Join(options, Sgd{}, &world.model(1), world.transports(), &world.link(1)),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("w5"), HasSubstr("w0, w1"))));
}

TEST(Join, RefusesAnEpochThatIsNotNewer) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({}, Epoch(3));
  world.Propose({}, Epoch(3));
  world.link(0).RefuseStart(absl::AbortedError("over"));
  EXPECT_THAT(world.Join(0, Sgd{}), StatusIs(absl::StatusCode::kInternal));
}

TEST(Join, RefusesBadOptionsByName) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({});
  const auto join = [&](const EngineOptions& options, const OptimizerConfig& optimizer) {
    return Engine::Join(options, optimizer, &world.model(0), world.transports(), &world.link(0))
        .status();
  };
  EngineOptions options = world.OptionsOf(0);
  EXPECT_THAT(join(options, Sgd{.lr = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lr")));
  EXPECT_THAT(join(options, Sgd{.groups = {{.pattern = "v"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("near names: w")));
  options.worker = "";
  EXPECT_THAT(join(options, Sgd{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker")));
  options = world.OptionsOf(0);
  options.join_timeout = absl::ZeroDuration();
  EXPECT_THAT(join(options, Sgd{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("join_timeout")));
  options = world.OptionsOf(0);
  options.operation_timeout = -absl::Seconds(1);
  EXPECT_THAT(join(options, Sgd{}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("operation_timeout")));
}

TEST(Alone, TrainsWithoutACoordinator) {
  VectorModel model;
  model.AddParameter("w", {1, 1, 1});
  model.AddBuffer<float>("b", {7});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto engine, Engine::Alone(Sgd{.lr = 0.5}, {}, &model));
  EXPECT_EQ(engine->world_size(), 1);
  LOCKSTEP_EXPECT_OK(engine->BeforeForward());
  for (float& value : model.gradient("w")) value = 1;
  LOCKSTEP_EXPECT_OK(engine->Step({.samples = 4}));
  LOCKSTEP_EXPECT_OK(engine->BroadcastBuffers(0));
  LOCKSTEP_EXPECT_OK(engine->BroadcastParameters(0));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift, engine->MeasureBufferDrift());
  EXPECT_EQ(drift.largest, 0);
  engine.reset();
  EXPECT_FALSE(model.adopted());
  EXPECT_THAT(model.parameter("w"), Each(0.5f));
}

TEST(Alone, RefusesABadPolicyAndABadOptimizer) {
  VectorModel model;
  model.AddParameter("w", {1});
  SyncPolicy policy;
  policy.allow_list = {"re:("};
  EXPECT_THAT(Engine::Alone(Sgd{}, policy, &model), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Engine::Alone(Adam{.eps = -1}, {}, &model),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Engine::Alone(Adam{.groups = {{.pattern = "v"}}}, {}, &model),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Alone, TrainsAModelWithoutTrainableParameters) {
  VectorModel model;
  model.AddFrozenParameter("embedding", {1});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto engine, Engine::Alone(AdamW{}, {}, &model));
  LOCKSTEP_EXPECT_OK(engine->Step({}));
  EXPECT_EQ(engine->step(), 1);
}

TEST(Leave, GivesTheModelItsParametersBackAndEndsTheEngine) {
  ThreadedWorld world(2);
  AddTensors(world).Propose({});
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{.lr = 0.5}));
    for (float& value : world.model(rank).gradient("w")) value = 1;
    LOCKSTEP_EXPECT_OK(world.engine(rank).Step({}));
    world.engine(rank).Leave(absl::OkStatus());
    EXPECT_FALSE(world.model(rank).adopted());
    EXPECT_THAT(world.model(rank).parameter("w"), Each(0.5f));
    EXPECT_EQ(world.link(rank).left(), absl::OkStatus());
    EXPECT_THAT(world.engine(rank).Step({}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("left")));
    world.engine(rank).Leave(absl::InternalError("the first one counts"));
    EXPECT_EQ(world.link(rank).left(), absl::OkStatus());
  });
}

TEST(Leave, WithAnErrorTellsThePeers) {
  ThreadedWorld world(2);
  AddTensors(world).Propose({});
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}));
    if (rank == 0) {
      world.engine(0).Leave(absl::InternalError("the disk is full"));
    } else {
      EXPECT_THAT(world.engine(1).Step({}),
                  StatusIs(absl::StatusCode::kAborted, HasSubstr("the disk is full")));
    }
  });
}

TEST(Leave, IsCalledByTheDestructor) {
  ThreadedWorld world(1);
  AddTensors(world).Propose({});
  ManualLink* const link = &world.link(0);
  {
    auto engine = Engine::Join(world.OptionsOf(0), Sgd{}, &world.model(0), world.transports(), link);
    LOCKSTEP_ASSERT_OK(engine);
    EXPECT_EQ(link->left(), std::nullopt);
  }
  EXPECT_THAT(*link->left(), StatusIs(absl::StatusCode::kCancelled));
  link->AbortEpoch(absl::AbortedError("too late to reach anything"));
}

}  // namespace
}  // namespace lockstep
