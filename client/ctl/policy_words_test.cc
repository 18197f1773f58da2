#include "client/ctl/policy_words.h"

#include <cstdint>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/policy/operation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Root RandomRoot(Prng& prng) {
  if (prng.Below(3) == 0) return RootRank{prng.Between(0, 9)};
  if (prng.Below(3) == 0) return RootWorker{"w-2.host"};
  return LowestRank{};
}

Schedule RandomSchedule(Prng& prng) {
  return {.at_start = prng.Below(2) == 0,
          .every_forwards = prng.Between(0, 2),
          .every_steps = prng.Below(2) == 0 ? 0 : prng.Between(0, 100),
          .before_evaluation = prng.Below(2) == 0,
          .before_checkpoint = prng.Below(2) == 0};
}

SyncRule RandomRule(Prng& prng) {
  SyncRule rule = {.pattern = "re:layer[0-9]=.*"};
  rule.operation = OperationFromNumber(static_cast<std::int64_t>(prng.Below(8)));
  if (prng.Below(2) == 0) rule.root = RandomRoot(prng);
  if (prng.Below(2) == 0) rule.schedule = RandomSchedule(prng);
  return rule;
}

TEST(Rule, IsTheSameAfterItWasWrittenAndRead) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    const SyncRule expected = RandomRule(prng);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncRule parsed, ParseRule(RuleText(expected)));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const SyncRule read, FromProto(parsed));
    EXPECT_EQ(read, expected) << RuleText(expected) << "\n" << parsed.ShortDebugString();
  }
}

TEST(Rule, WithoutKeysHasNeitherRootNorSchedule) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncRule rule, ParseRule("  **.count   sum "));
  EXPECT_EQ(rule.pattern(), "**.count");
  EXPECT_EQ(rule.operation(), v1::OPERATION_SUM);
  EXPECT_FALSE(rule.has_root());
  EXPECT_FALSE(rule.has_schedule());
}

TEST(Rule, WithAKeyOfTheScheduleHasItsOwnInWhichTheOthersAreOff) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncRule rule, ParseRule("x default every-steps=100"));
  EXPECT_EQ(rule.operation(), v1::OPERATION_UNSPECIFIED);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Schedule schedule, FromProto(rule.schedule()));
  EXPECT_EQ(schedule, (Schedule{.at_start = true, .every_forwards = 0, .every_steps = 100}));
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

}  // namespace
}  // namespace lockstep
