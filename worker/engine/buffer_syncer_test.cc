// What is kept equal, from which root, and what is left alone.
#include "worker/engine/buffer_syncer.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/synced_world.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StartUp, MakesParametersAndBuffersThoseOfTheRoot) {
  SyncPolicy policy;
  policy.broadcast_buffers = false;  // the start is independent of it
  policy.root = RootWorker{"w2"};
  policy.ignore_list = {"cache"};
  SyncedWorld world(3, policy);
  for (int rank = 0; rank < 3; ++rank) {
    VectorModel& model = world->model(rank);
    EXPECT_THAT(model.parameter("fc.weight"), Each(2)) << rank;
    EXPECT_THAT(model.frozen("embedding"), Each(2)) << rank;
    EXPECT_EQ(Mean(model), (Floats{2, -2})) << rank;
    EXPECT_EQ(Batches(model), (Ints{102})) << rank;
    EXPECT_EQ(Cache(model)[0], rank * 2.0) << rank;
  }
}

TEST(StartUp, LeavesEveryReplicaAsItIsIfThePolicySaysSo) {
  SyncedWorld world(2, Quiet());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(world->model(rank).frozen("embedding"), Each(rank));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{100 + rank}));
  }
}

TEST(BufferSync, MovesEveryBitAndLeavesWhatIsNotSelected) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.root = RootRank{1};
  policy.allow_list = {"bn.*"};
  SyncedWorld world(4, policy);
  const auto quiet_nan = std::bit_cast<float>(0x7fc01234u);
  world->model(1).SetBuffer<float>("bn.running_mean", {quiet_nan, -0.0f});
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeForward());
    const Floats mean = Mean(world->model(rank));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(mean[0]), 0x7fc01234u);
    EXPECT_TRUE(std::signbit(mean[1]));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{101}));
    EXPECT_EQ(Cache(world->model(rank))[0], rank * 2.0);
    EXPECT_EQ(world->engine(rank).stats().sync.syncs, 1);
    EXPECT_EQ(world->engine(rank).stats().sync.bytes, 2 * 4 + 8);
  });
}

TEST(BufferSync, HappensOnlyBeforeTheFirstForwardOfAStep) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    world->model(rank).SetBuffer<std::int64_t>("bn.num_batches_tracked", {50 + rank});
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    LOCKSTEP_ASSERT_OK(engine.BeforeEvaluation());
    EXPECT_EQ(Batches(world->model(rank)), (Ints{50 + rank}));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{50 + rank}));
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(Batches(world->model(rank)), (Ints{50}));
  });
}

TEST(BufferSync, HappensBeforeEvaluationAndAfterEveryNthStepIfAskedFor) {
  SyncPolicy policy = Quiet();
  policy.schedule.before_evaluation = true;
  policy.schedule.every_steps = 2;
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeEvaluation());
    EXPECT_EQ(Batches(model), (Ints{100}));
    model.SetBuffer<std::int64_t>("bn.num_batches_tracked", {50 + rank});
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    EXPECT_EQ(Batches(model), (Ints{50 + rank}));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    EXPECT_EQ(Batches(model), (Ints{50}));
  });
}

TEST(BufferSync, RunsOnceForACommandWhateverThePolicySays) {
  SyncPolicy policy = Quiet();
  policy.broadcast_buffers = false;
  SyncedWorld world(3, policy);
  world->Run([&](int rank) {
    world->link(rank).Append(
        {LogNumber(1), SyncOnce{.buffers = true, .parameters = true, .root = RootRank{2}}});
    LOCKSTEP_ASSERT_OK(world->engine(rank).Step({}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{102}));
    EXPECT_THAT(world->model(rank).frozen("embedding"), Each(2));
    world->model(rank).SetBuffer<std::int64_t>("bn.num_batches_tracked", {50 + rank});
    LOCKSTEP_ASSERT_OK(world->engine(rank).Step({}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{50 + rank}));
  });
}

TEST(BufferSync, TreatsEachBufferByTheFirstRuleThatMatches) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.rules = {{.pattern = "**.num_batches_tracked", .operation = Operation::kSum},
                  {.pattern = "bn.*", .operation = Operation::kMean},
                  {.pattern = "**", .operation = Operation::kNone}};
  SyncedWorld world(3, policy);
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeForward());
    EXPECT_EQ(Mean(world->model(rank)), (Floats{1, -1}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{303}));
    EXPECT_EQ(Cache(world->model(rank))[0], rank * 2.0);
  });
}

TEST(BufferSync, IsOneExchangeWithOneTransferForEachOperationAndRoot) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.rules = {{.pattern = "bn.running_mean", .root = RootRank{1}},
                  {.pattern = "cache", .operation = Operation::kMax}};
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeForward());
    EXPECT_EQ(world->engine(rank).stats().sync,
              (SyncCounters{.syncs = 1,
                            .transfers = 3,
                            .bytes = 8 + 8 + 16,
                            .last_transfers = 3,
                            .last_bytes = 32}));
    EXPECT_EQ(Mean(world->model(rank)), (Floats{1, -1}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{100}));
    EXPECT_EQ(Cache(world->model(rank)), (std::vector<double>{2, 1}));
  });
}

TEST(BufferSync, WritesWhatItMovedButForABroadcastsRoot) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.root = RootRank{1};
  policy.rules = {{.pattern = "cache", .operation = Operation::kMax}};
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeForward());
    const std::vector<std::string>& written = world->model(rank).written();
    if (rank == 1) {
      EXPECT_THAT(written, ElementsAre("cache"));
    } else {
      EXPECT_THAT(written, ElementsAre("bn.running_mean", "bn.num_batches_tracked", "cache"));
    }
  });
}

TEST(BufferSync, AMeanBySamplesCountsEachRankByItsSamples) {
  SyncPolicy policy = Quiet();
  policy.rules = {{.pattern = "bn.running_mean", .operation = Operation::kMeanBySamples},
                  {.pattern = "**", .operation = Operation::kNone}};
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    // No rank has samples yet: all count alike.
    LOCKSTEP_ASSERT_OK(engine.SyncBuffers());
    EXPECT_EQ(Mean(world->model(rank)), (Floats{0.5, -0.5}));
    LOCKSTEP_ASSERT_OK(engine.Step({.samples = rank == 0 ? 3 : 1}));
    world->model(rank).SetBuffer<float>("bn.running_mean", {static_cast<float>(rank * 8), 0});
    LOCKSTEP_ASSERT_OK(engine.SyncBuffers());
    EXPECT_EQ(Mean(world->model(rank)), (Floats{2, 0}));
    // A rank without data since then counts for nothing, not even its NaN.
    LOCKSTEP_ASSERT_OK(engine.Step({.samples = rank == 0 ? 0 : 5}));
    world->model(rank).SetBuffer<float>("bn.running_mean", {rank == 0 ? std::nanf("") : 7.0f, 1});
    LOCKSTEP_ASSERT_OK(engine.SyncBuffers());
    EXPECT_EQ(Mean(world->model(rank)), (Floats{7, 1}));
  });
}

TEST(BufferSync, AStartBroadcastsWhateverTheOperation) {
  SyncPolicy policy;
  policy.operation = Operation::kMean;
  policy.root = RootRank{1};
  policy.rules = {{.pattern = "**.num_batches_tracked", .operation = Operation::kSum},
                  {.pattern = "cache", .operation = Operation::kNone}};
  SyncedWorld world(2, policy);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Mean(world->model(rank)), (Floats{1, -1}));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{101}));
    EXPECT_EQ(Cache(world->model(rank))[0], rank * 2.0);
  }
}

TEST(BufferSync, HappensBeforeACheckpointIfAskedFor) {
  SyncPolicy policy = Quiet();
  policy.schedule.before_checkpoint = true;
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeEvaluation());
    EXPECT_EQ(Batches(world->model(rank)), (Ints{100 + rank}));
    LOCKSTEP_ASSERT_OK(world->engine(rank).BeforeCheckpoint());
    EXPECT_EQ(Batches(world->model(rank)), (Ints{100}));
  });
}

TEST(BufferSync, LeavesOutWhatNoRankHasChanged) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.skip_unchanged = true;
  policy.rules = {{.pattern = "**.num_batches_tracked", .operation = Operation::kSum}};
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(engine.stats().sync.bytes, 32);
    EXPECT_EQ(Batches(world->model(rank)), (Ints{201}));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    // Only rank 1 changes one; a sum of what is unchanged is another sum.
    if (rank == 1) world->model(rank).SetBuffer<float>("bn.running_mean", {9, 9});
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(engine.stats().sync.last_bytes, 8 + 8);
    EXPECT_EQ(engine.stats().sync.skipped_bytes, 16);
    EXPECT_EQ(Batches(world->model(rank)), (Ints{402}));
    EXPECT_EQ(Mean(world->model(rank)), (Floats{0, 0}));
  });
}

TEST(BufferSync, WithNothingChangedMovesNothing) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.skip_unchanged = true;
  SyncedWorld world(3, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    for (int step = 0; step < 4; ++step) {
      LOCKSTEP_ASSERT_OK(engine.BeforeForward());
      LOCKSTEP_ASSERT_OK(engine.Step({}));
    }
    EXPECT_EQ(engine.stats().sync.syncs, 1);
    EXPECT_EQ(engine.stats().sync.bytes, 32);
    EXPECT_EQ(engine.stats().sync.skipped_bytes, 3 * 32);
  });
}

TEST(BufferSync, ThatOnlyOneRankHasIsNamedAlsoWhereUnchangedOnesAreLeftOut) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.skip_unchanged = true;
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    if (rank == 1) world->model(rank).AddBuffer<float>("late", {1});
    EXPECT_THAT(engine.BeforeForward(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("'late"), HasSubstr("absent on w0 (rank 0)"))));
  });
}

TEST(BufferSync, ThatRanksDisagreeOnInOneTransferLeavesTheOthersUntouched) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = 1;
  policy.rules = {{.pattern = "late", .operation = Operation::kMax}};
  SyncedWorld world(2, policy);
  world->model(0).AddBuffer<float>("late", {1, 2});
  world->model(1).AddBuffer<float>("late", {1, 2, 3});
  world->Run([&](int rank) {
    EXPECT_THAT(world->engine(rank).BeforeForward(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("late"), HasSubstr("float32[2]"),
                               HasSubstr("float32[3]"))));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{100 + rank}));
  });
}

TEST(BufferSync, OfAModelWithoutBuffersDoesNothing) {
  ThreadedWorld world(2);
  for (int rank = 0; rank < 2; ++rank) world.model(rank).AddParameter("w", Floats(3, 1));
  world.Propose({});
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}));
    LOCKSTEP_EXPECT_OK(world.engine(rank).BeforeForward());
    LOCKSTEP_EXPECT_OK(world.engine(rank).BroadcastBuffers(1));
    LOCKSTEP_EXPECT_OK(world.engine(rank).Step({}));
    EXPECT_EQ(world.engine(rank).stats().sync.syncs, 0);
    EXPECT_THAT(world.engine(rank).MeasureBufferDrift(), IsOk());
  });
}

TEST(BufferSync, ThatRanksDisagreeOnNamesTheTensorOnEveryRankAndTouchesNothing) {
  SyncedWorld world(3, Quiet());
  world->model(2).SetBuffer<float>("bn.running_mean", {9, 9, 9});
  world->Run([&](int rank) {
    const Floats before = Mean(world->model(rank));
    EXPECT_THAT(world->engine(rank).BroadcastBuffers(0),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("bn.running_mean"), HasSubstr("w2"))));
    EXPECT_EQ(Mean(world->model(rank)), before);
  });
}

TEST(BufferSync, ThatOnlySomeRanksHaveBuffersForIsAnErrorOnAll) {
  ThreadedWorld world(2);
  for (int rank = 0; rank < 2; ++rank) world.model(rank).AddParameter("w", Floats(3, 1));
  world.model(1).AddBuffer<float>("lazy", {1});
  world.Propose(Quiet());
  world.Run([&](int rank) {
    LOCKSTEP_ASSERT_OK(world.Join(rank, Sgd{}));
    EXPECT_THAT(world.engine(rank).BroadcastBuffers(0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lazy")));
  });
}

// What a sync has found out is used again, but never for too long.
class RepeatedSync : public testing::Test {
 protected:
  static SyncPolicy EveryForward() {
    SyncPolicy policy = Quiet();
    policy.schedule.every_forwards = 1;
    // Only on command.
    policy.rules = {{.pattern = "cache", .schedule = Quiet().schedule}};
    return policy;
  }
  static void SetAll(VectorModel& model, int value) {
    model.SetBuffer("bn.running_mean", Floats(2, static_cast<float>(value)));
    model.SetBuffer("bn.num_batches_tracked", Ints{value});
    model.SetBuffer("cache", std::vector<double>(2, value));
  }
};

TEST_F(RepeatedSync, LooksForBuffersOnce) {
  SyncedWorld world(2, EveryForward());
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    for (int step = 0; step < 4; ++step) {
      SetAll(model, 10 * step + rank);
      LOCKSTEP_ASSERT_OK(engine.BeforeForward());
      EXPECT_EQ(Mean(model), Floats(2, 10 * step)) << step;
      EXPECT_EQ(Cache(model)[0], 10 * step + rank) << step;
      LOCKSTEP_ASSERT_OK(engine.Step({}));
    }
    EXPECT_EQ(model.found(), 1);
    EXPECT_EQ(engine.stats().sync.syncs, 4);
    EXPECT_EQ(engine.stats().sync.bytes, 4 * 16);
  });
}

TEST_F(RepeatedSync, FollowsBuffersThatAreResizedOrAdded) {
  SyncedWorld world(2, EveryForward());
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    model.SetBuffer("bn.running_mean", Floats(3, 7 + rank));
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(Mean(model), Floats(3, 7));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    model.AddBuffer("late", Floats(1, 5 + rank));
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(model.buffer<float>("late"), Floats(1, 5));
  });
}

TEST_F(RepeatedSync, FollowsWhatIsDueAndFromWhichRoot) {
  SyncedWorld world(3, EveryForward());
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    for (const int root : {1, 2, 0}) {
      SetAll(model, rank);
      LOCKSTEP_ASSERT_OK(engine.BeforeForward());
      EXPECT_EQ(Mean(model), Floats(2, 0));
      EXPECT_EQ(Cache(model)[0], rank);
      SetAll(model, rank);
      LOCKSTEP_ASSERT_OK(engine.BroadcastBuffers(root));
      EXPECT_EQ(Mean(model), Floats(2, root));
      EXPECT_EQ(Cache(model)[0], root);
      EXPECT_EQ(model.written().size(), rank == root ? 0u : 3u);
      SetAll(model, rank);
      LOCKSTEP_ASSERT_OK(engine.BroadcastBuffers((root + 1) % 3));
      EXPECT_EQ(Mean(model), Floats(2, (root + 1) % 3));
      LOCKSTEP_ASSERT_OK(engine.Step({}));
    }
  });
}

TEST_F(RepeatedSync, FollowsAnotherPolicyOverTheSameBuffers) {
  SyncedWorld world(2, EveryForward());
  SyncPolicy revised = EveryForward();
  revised.ignore_list = {"bn.num_batches_tracked"};
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    world->link(rank).Append({LogNumber(1), PolicyRevised{Revision(2), revised}});
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    SetAll(model, rank);
    LOCKSTEP_ASSERT_OK(engine.BeforeForward());
    EXPECT_EQ(Mean(model), Floats(2, 0));
    EXPECT_EQ(Batches(model), (Ints{rank}));
  });
}

TEST_F(RepeatedSync, FollowsTheSamplesWithoutLookingForBuffersAgain) {
  SyncPolicy policy = Quiet();
  policy.rules = {{.pattern = "bn.running_mean", .operation = Operation::kMeanBySamples},
                  {.pattern = "**", .operation = Operation::kNone}};
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    VectorModel& model = world->model(rank);
    for (const int samples : {1, 3, 7}) {
      LOCKSTEP_ASSERT_OK(engine.Step({.samples = rank == 0 ? 1 : samples}));
      SetAll(model, 8 * rank);
      LOCKSTEP_ASSERT_OK(engine.SyncBuffers());
      EXPECT_EQ(Mean(model), Floats(2, 8.0f * samples / (1 + samples))) << samples;
    }
    EXPECT_EQ(model.found(), 1);
  });
}

TEST(ManualBroadcast, TakesTheRootThatTrainingCodeNames) {
  SyncedWorld world(3, Quiet());
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    EXPECT_THAT(engine.BroadcastBuffers(3),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 3")));
    EXPECT_THAT(engine.BroadcastParameters(-1), StatusIs(absl::StatusCode::kInvalidArgument));
    LOCKSTEP_ASSERT_OK(engine.BroadcastBuffers(1));
    EXPECT_EQ(Batches(world->model(rank)), (Ints{101}));
    LOCKSTEP_ASSERT_OK(engine.BroadcastParameters(2));
    EXPECT_THAT(world->model(rank).frozen("embedding"), Each(2));
  });
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(Floats(world->model(rank).parameter("fc.weight").begin(),
                     world->model(rank).parameter("fc.weight").end()),
              Floats(world->model(0).parameter("fc.weight").begin(),
                     world->model(0).parameter("fc.weight").end()));
  }
}

}  // namespace
}  // namespace lockstep
