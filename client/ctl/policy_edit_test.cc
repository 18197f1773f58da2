#include "client/ctl/policy_edit.h"

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::SyncPolicy Present() {
  v1::SyncPolicy policy;
  policy.set_broadcast_buffers(false);
  policy.add_allow_list("**.running_*");
  policy.add_ignore_list("bn1.*");
  policy.mutable_root()->set_worker("w2");
  policy.mutable_schedule()->set_at_start(false);
  policy.mutable_schedule()->set_every_forwards(4);
  policy.mutable_schedule()->set_every_steps(10);
  policy.mutable_schedule()->set_before_evaluation(true);
  policy.set_broadcast_parameters_at_start(false);
  policy.set_operation(v1::OPERATION_MEAN);
  policy.add_rules()->set_pattern("count");
  return policy;
}

v1::SyncPolicy MustApply(const PolicyEdit& edit) {
  absl::StatusOr<v1::SyncPolicy> policy = Apply(edit, Present());
  EXPECT_THAT(policy, IsOk());
  return policy.value_or(v1::SyncPolicy());
}

TEST(PolicyEdit, WhatIsNotNamedStays) {
  EXPECT_TRUE(PolicyEdit().names_nothing());
  EXPECT_TRUE(MessageDifferencer::Equals(MustApply({}), Present()));
}

TEST(PolicyEdit, EachSwitchChangesOnlyItself) {
  struct Case {
    PolicyEdit edit;
    void (*change)(v1::SyncPolicy&);
  };
  const Case cases[] = {
      {{.broadcast_buffers = true}, [](v1::SyncPolicy& p) { p.set_broadcast_buffers(true); }},
      {{.clear_allow = true}, [](v1::SyncPolicy& p) { p.clear_allow_list(); }},
      {{.allow = {"x"}}, [](v1::SyncPolicy& p) { p.add_allow_list("x"); }},
      {{.clear_ignore = true}, [](v1::SyncPolicy& p) { p.clear_ignore_list(); }},
      {{.ignore = {"x"}}, [](v1::SyncPolicy& p) { p.add_ignore_list("x"); }},
      {{.clear_rules = true}, [](v1::SyncPolicy& p) { p.clear_rules(); }},
      {{.rules = {"x sum"}},
       [](v1::SyncPolicy& p) {
         p.add_rules()->set_pattern("x");
         p.mutable_rules(1)->set_operation(v1::OPERATION_SUM);
       }},
      {{.operation = "max"}, [](v1::SyncPolicy& p) { p.set_operation(v1::OPERATION_MAX); }},
      {{.operation = "default"}, [](v1::SyncPolicy& p) { p.clear_operation(); }},
      {{.clear_root = true}, [](v1::SyncPolicy& p) { p.clear_root(); }},
      {{.root = "3"}, [](v1::SyncPolicy& p) { p.mutable_root()->set_rank(3); }},
      {{.at_start = true}, [](v1::SyncPolicy& p) { p.mutable_schedule()->set_at_start(true); }},
      {{.every_forwards = 0},
       [](v1::SyncPolicy& p) { p.mutable_schedule()->set_every_forwards(0); }},
      {{.every_steps = 7}, [](v1::SyncPolicy& p) { p.mutable_schedule()->set_every_steps(7); }},
      {{.before_evaluation = false},
       [](v1::SyncPolicy& p) { p.mutable_schedule()->set_before_evaluation(false); }},
      {{.before_checkpoint = true},
       [](v1::SyncPolicy& p) { p.mutable_schedule()->set_before_checkpoint(true); }},
      {{.skip_unchanged = true}, [](v1::SyncPolicy& p) { p.set_skip_unchanged(true); }},
      {{.parameters_every_steps = 5},
       [](v1::SyncPolicy& p) { p.set_broadcast_parameters_every_steps(5); }},
      {{.check_parameters_every_steps = 6},
       [](v1::SyncPolicy& p) { p.set_check_parameters_every_steps(6); }},
      {{.parameters_at_start = true},
       [](v1::SyncPolicy& p) { p.set_broadcast_parameters_at_start(true); }},
  };
  for (const Case& c : cases) {
    v1::SyncPolicy expected = Present();
    c.change(expected);
    EXPECT_FALSE(c.edit.names_nothing()) << expected.ShortDebugString();
    EXPECT_TRUE(MessageDifferencer::Equals(MustApply(c.edit), expected))
        << expected.ShortDebugString();
  }
}

TEST(PolicyEdit, ClearingComesBeforeAdding) {
  EXPECT_THAT(MustApply({.clear_allow = true, .allow = {"a", "b"}}).allow_list(),
              ElementsAre("a", "b"));
  EXPECT_EQ(MustApply({.clear_root = true, .root = "w9"}).root().worker(), "w9");
}

TEST(PolicyEdit, APatternThatIsThereIsNotAddedTwice) {
  EXPECT_THAT(MustApply({.ignore = {"bn1.*", "bn2.*", "bn2.*"}}).ignore_list(),
              ElementsAre("bn1.*", "bn2.*"));
}

TEST(PolicyEdit, ABaseReplacesThePresentPolicyAndFlagsApplyOnTop) {
  v1::SyncPolicy base;
  base.add_ignore_list("cache");
  const v1::SyncPolicy policy = MustApply({.base = base, .every_steps = 3});
  EXPECT_THAT(policy.allow_list(), IsEmpty());
  EXPECT_THAT(policy.ignore_list(), ElementsAre("cache"));
  EXPECT_EQ(policy.schedule().every_steps(), 3);
  EXPECT_FALSE(policy.has_broadcast_buffers());
}

TEST(PolicyEdit, AScheduleFlagKeepsTheDefaultsOfAPolicyWithoutASchedule) {
  const v1::SyncPolicy policy = MustApply({.base = v1::SyncPolicy(), .before_evaluation = true});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SyncPolicy value, FromProto(policy));
  EXPECT_EQ(value.schedule, (Schedule{.at_start = true, .every_forwards = 1,
                                      .before_evaluation = true}));
}

TEST(PolicyEdit, WithoutAScheduleFlagMakesNoSchedule) {
  EXPECT_FALSE(MustApply({.base = v1::SyncPolicy(), .skip_unchanged = true}).has_schedule());
}

TEST(PolicyEdit, NotesAPeriodThatIsOnThoughTheOtherWasNamed) {
  const v1::SyncPolicy none;
  const auto note = [&](PolicyEdit edit) {
    edit.base = none;
    return NoteOnPeriods(edit, MustApply(edit));
  };
  EXPECT_EQ(note({.every_steps = 100}),
            "every-forwards (1) and every-steps (100) are both on; --every-forwards 0 turns the "
            "other off");
  EXPECT_EQ(note({.every_forwards = 0, .every_steps = 100}), "");
  EXPECT_EQ(note({.every_forwards = 2, .every_steps = 100}), "");
  EXPECT_EQ(note({.every_steps = 0}), "");
  EXPECT_EQ(note({.every_forwards = 3}), "");
  EXPECT_EQ(note({.skip_unchanged = true}), "");
  const PolicyEdit forwards = {.every_forwards = 3};
  EXPECT_THAT(NoteOnPeriods(forwards, MustApply(forwards)), HasSubstr("--every-steps 0"));
  EXPECT_EQ(NoteOnPeriods({}, Present()), "");
}

TEST(PolicyEdit, RulesAreAppendedAsOftenAsTheyAreNamed) {
  const v1::SyncPolicy policy = MustApply({.clear_rules = true, .rules = {"a sum", "a sum"}});
  EXPECT_EQ(policy.rules_size(), 2);
}

TEST(PolicyEdit, RefusesWordsThatAreWrong) {
  for (const PolicyEdit& edit : {PolicyEdit{.rules = {"a"}}, PolicyEdit{.operation = "median"},
                                 PolicyEdit{.root = "-1"}}) {
    EXPECT_THAT(Apply(edit, Present()), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace lockstep
