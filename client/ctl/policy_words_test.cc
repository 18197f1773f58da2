#include "client/ctl/policy_words.h"

#include <cstdint>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::AllOf;
using testing::HasSubstr;

v1::Root RandomRoot(Prng& prng) {
  v1::Root root;
  if (prng.Below(3) == 0) root.set_rank(prng.Between(0, 9));
  if (prng.Below(3) == 0) root.set_worker("w-2.host");
  return root;
}

v1::Schedule RandomSchedule(Prng& prng) {
  v1::Schedule schedule;
  if (prng.Below(2) == 0) schedule.set_at_start(prng.Below(2) == 0);
  if (prng.Below(2) == 0) schedule.set_every_forwards(prng.Between(0, 5));
  if (prng.Below(2) == 0) schedule.set_every_steps(prng.Between(0, 100));
  schedule.set_before_evaluation(prng.Below(2) == 0);
  schedule.set_before_checkpoint(prng.Below(2) == 0);
  return schedule;
}

v1::SyncRule RandomRule(Prng& prng) {
  v1::SyncRule rule;
  rule.set_pattern("re:layer[0-9]=.*");
  rule.set_operation(static_cast<v1::Operation>(prng.Below(v1::Operation_ARRAYSIZE)));
  if (prng.Below(2) == 0) *rule.mutable_root() = RandomRoot(prng);
  if (prng.Below(2) == 0) *rule.mutable_schedule() = RandomSchedule(prng);
  return rule;
}

TEST(Rule, IsTheSameAfterItWasWrittenAndRead) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    v1::SyncPolicy expected;
    *expected.add_rules() = RandomRule(prng);
    v1::SyncPolicy read;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(*read.add_rules(), ParseRule(RuleText(expected.rules(0))));
    EXPECT_TRUE(MessageDifferencer::Equals(Complete(read), Complete(expected)))
        << RuleText(expected.rules(0)) << "\n" << read.ShortDebugString();
  }
}

TEST(Rule, WithoutKeysHasNeitherRootNorSchedule) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncRule rule, ParseRule("  **.count   sum "));
  EXPECT_EQ(rule.pattern(), "**.count");
  EXPECT_EQ(rule.operation(), v1::OPERATION_SUM);
  EXPECT_FALSE(rule.has_root());
  EXPECT_FALSE(rule.has_schedule());
  EXPECT_EQ(RuleText(rule), "**.count sum");
}

TEST(Rule, WithAKeyOfTheScheduleHasItsOwnInWhichTheOthersAreOff) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncRule rule, ParseRule("x default every-steps=100"));
  EXPECT_EQ(rule.operation(), v1::OPERATION_UNSPECIFIED);
  EXPECT_EQ(DescribeSchedule(rule.schedule()), "at start, every 100 steps");
}

TEST(Rule, IsRefusedWithTheWordThatIsWrong) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {
      {"", "expected PATTERN OPERATION"},
      {"**.count", "expected PATTERN OPERATION"},
      {"x median", "'median' is no operation; expected one of default, broadcast, mean"},
      {"x mean every_steps=3", "'every_steps' is no key; expected root, every-forwards"},
      {"x mean every-steps", "every-steps= is ''"},
      {"x mean every-steps=-1", "every-steps= is '-1'"},
      {"x mean at-start=true", "at-start= is 'true'; expected on or off"},
      {"x mean root=", "the root is empty"},
      {"x mean root=1 root=2", "'root' is given twice"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ParseRule(c.text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("the rule '"), HasSubstr(c.why))))
        << c.text;
  }
}

TEST(Root, IsARankAWorkerOrTheLowestRank) {
  EXPECT_EQ(ParseRoot("0")->rank(), 0);
  EXPECT_TRUE(ParseRoot("0")->has_rank());
  EXPECT_EQ(ParseRoot("w-2.host")->worker(), "w-2.host");
  EXPECT_EQ(ParseRoot("2w")->worker(), "2w");
  EXPECT_EQ(ParseRoot("lowest-rank")->root_case(), v1::Root::ROOT_NOT_SET);
  EXPECT_THAT(ParseRoot(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(ParseRoot("-1"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(ParseRoot("99999999999999999999"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DescribeSchedule, SaysWhatIsOn) {
  v1::Schedule schedule;
  schedule.set_at_start(false);
  EXPECT_EQ(DescribeSchedule(schedule), "on command only");
  schedule.set_every_forwards(3);
  schedule.set_every_steps(1);
  schedule.set_before_evaluation(true);
  schedule.set_before_checkpoint(true);
  EXPECT_EQ(DescribeSchedule(schedule),
            "every 3 forwards, after every step, before evaluation, before checkpoint");
  EXPECT_EQ(DescribeSchedule(DefaultSchedule()), "at start, before every forward");
}

// The twin: what the coordinator makes of the same message.
TEST(Complete, WritesTheDefaultsThatTheCoordinatorUses) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    v1::SyncPolicy policy;
    if (prng.Below(2) == 0) policy.set_broadcast_buffers(prng.Below(2) == 0);
    if (prng.Below(2) == 0) policy.set_operation(v1::OPERATION_MAX);
    if (prng.Below(2) == 0) *policy.mutable_root() = RandomRoot(prng);
    if (prng.Below(2) == 0) *policy.mutable_schedule() = RandomSchedule(prng);
    if (prng.Below(2) == 0) policy.set_broadcast_parameters_at_start(prng.Below(2) == 0);
    for (int i = 0; i < 3; ++i) *policy.add_rules() = RandomRule(prng);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SyncPolicy value, FromProto(policy));
    EXPECT_TRUE(MessageDifferencer::Equals(Complete(policy), ToProto(value)))
        << policy.ShortDebugString();
  }
}

}  // namespace
}  // namespace lockstep
