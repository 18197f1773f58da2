#include "worker/engine/buffer_drift.h"

#include <limits>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/synced_world.h"

namespace lockstep {
namespace {


TEST(BufferDrift, IsTheLargestDifferenceBetweenAnyTwoRanks) {
  SyncedWorld world(3, Quiet());  // "cache" holds {2r, r}: the largest is 4
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift,
                                  world->engine(rank).MeasureBufferDrift());
    EXPECT_EQ(drift.largest, 4);
    EXPECT_EQ(drift.buffer, "cache");
    EXPECT_EQ(Cache(world->model(rank))[0], rank * 2.0);  // only looked at

    LOCKSTEP_ASSERT_OK(world->engine(rank).BroadcastBuffers(0));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift none,
                                  world->engine(rank).MeasureBufferDrift());
    EXPECT_EQ(none.largest, 0);
    EXPECT_EQ(none.buffer, "");
  });
}

TEST(BufferDrift, OfANaNOnOneRankIsInfinite) {
  SyncedWorld world(2, Quiet());
  world->model(1).SetBuffer<float>("bn.running_mean", {0, std::nanf("")});
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift,
                                  world->engine(rank).MeasureBufferDrift());
    EXPECT_EQ(drift.largest, std::numeric_limits<double>::infinity());
    EXPECT_EQ(drift.buffer, "bn.running_mean");
  });
}

TEST(BufferDrift, LooksAtWhatThePolicySynchronisesOnly) {
  SyncPolicy policy = Quiet();
  policy.ignore_list = {"own"};
  policy.rules = {{.pattern = "cache", .operation = Operation::kNone}};
  SyncedWorld world(2, policy);
  // An excluded buffer may differ in any way.
  world->model(0).AddBuffer<float>("own", {1, 2});
  world->model(1).AddBuffer<float>("own", {1, 2, 3});
  world->model(1).SetBuffer<float>("bn.running_mean", {0, 0.25});
  world->model(0).SetBuffer<double>("cache", {1e6, 0});
  world->Run([&](int rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferDrift drift,
                                  world->engine(rank).MeasureBufferDrift());
    EXPECT_EQ(drift.buffer, "bn.running_mean");
    EXPECT_EQ(drift.largest, 0.25);
  });
}

}  // namespace
}  // namespace lockstep
