// Revisions that training code asks for where there is no coordinator.
#include "worker/engine/engine.h"

#include <limits>
#include <memory>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/synced_world.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(RevisePolicy, AloneIsInForceAfterTheNextStep) {
  VectorModel model;
  AddTensors(model, 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine,
                                Engine::Alone(Sgd{}, Quiet(), &model));
  SyncPolicy revised = Quiet();
  revised.allow_list = {"bn.*"};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision revision, engine->RevisePolicy(revised, "test"));
  EXPECT_EQ(engine->RevisePolicy(revised, "again").value(), revision);
  EXPECT_EQ(engine->policy(), Quiet());
  LOCKSTEP_ASSERT_OK(engine->Step({}));
  EXPECT_EQ(engine->policy(), revised);
  EXPECT_EQ(engine->revision(), revision);
  revised.allow_list = {"bn.runing_mean"};
  EXPECT_THAT(engine->RevisePolicy(revised, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bn.running_mean")));
  EXPECT_THAT(engine->RevisePolicy({.operation = Operation::kMean}, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_batches_tracked")));
}

TEST(RevisePolicy, AloneKnowsItsNewestRevisionAlsoAfterARefusedStep) {
  VectorModel model;
  AddTensors(model, 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine,
                                Engine::Alone(Sgd{}, Quiet(), &model));
  SyncPolicy revised = Quiet();
  revised.allow_list = {"bn.*"};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision second, engine->RevisePolicy(revised, ""));
  EXPECT_THAT(engine->Step({.samples = 0}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(engine->RevisePolicy(revised, "the same").value(), second);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Revision third, engine->RevisePolicy(Quiet(), "back"));
  EXPECT_EQ(third, second.next());
  LOCKSTEP_ASSERT_OK(engine->Step({}));
  EXPECT_EQ(engine->policy(), Quiet());
  EXPECT_EQ(engine->revision(), third);
}

}  // namespace
}  // namespace lockstep
