#include "worker/engine/parameter_sync.h"


#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/synced_world.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(ParameterSync, ACheckNamesTheParameterAndTheRanksOnEveryRank) {
  SyncPolicy policy = Quiet();
  policy.broadcast_parameters_at_start = true;
  policy.check_parameters_every_steps = 2;
  SyncedWorld world(3, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    if (rank == 2) world->model(rank).SetFrozen("embedding", Floats(4, 9));
    EXPECT_THAT(engine.Step({}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("parameter 'embedding' on rank 2 differs from rank 0's")));
  });
}

TEST(ParameterSync, ABroadcastEveryNStepsMakesThemEqualAgain) {
  SyncPolicy policy = Quiet();
  policy.broadcast_parameters_at_start = true;
  policy.broadcast_parameters_every_steps = 2;
  policy.check_parameters_every_steps = 2;
  SyncedWorld world(2, policy);
  world->Run([&](int rank) {
    Engine& engine = world->engine(rank);
    LOCKSTEP_ASSERT_OK(engine.Step({}));
    if (rank == 1) world->model(rank).SetFrozen("embedding", Floats(4, 9));
    LOCKSTEP_EXPECT_OK(engine.Step({}));
    EXPECT_THAT(world->model(rank).frozen("embedding"), Each(0));
  });
}

TEST(ParameterSync, ACheckNamesAParameterThatOnlySomeRanksHave) {
  SyncPolicy policy = Quiet();
  policy.broadcast_parameters_at_start = true;
  policy.check_parameters_every_steps = 1;
  SyncedWorld world(2, policy);
  world->model(1).AddFrozenParameter("late", {1});
  world->Run([&](int rank) {
    EXPECT_THAT(world->engine(rank).Step({}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'late'")));
  });
}

}  // namespace
}  // namespace lockstep
