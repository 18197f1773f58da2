#include "common/policy/buffer_rules.h"

#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

bool Selects(const BufferRules& rules, absl::string_view name) {
  return rules.Find(name).treatment >= 0;
}

TEST(BufferRules, SelectsAllByDefaultAndIgnoresFirst) {
  struct Case {
    SyncPolicy policy;
    bool mean;   // selects bn1.running_mean
    bool queue;  // selects head.queue
  };
  const std::vector<Case> cases = {
      {{}, true, true},
      {{.broadcast_buffers = false}, true, true},
      {{.allow_list = {"**.running_*"}}, true, false},
      {{.ignore_list = {"head.*"}}, true, false},
      {{.allow_list = {"bn1.*", "head.*"}, .ignore_list = {"**.queue"}}, true, false},
      {{.allow_list = {"bn1.running_mean"}, .ignore_list = {"bn1.running_mean"}}, false, false},
      {{.allow_list = {"none"}}, false, false},
  };
  for (const Case& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferRules rules,
                                  BufferRules::Compile(c.policy));
    EXPECT_EQ(Selects(rules, "bn1.running_mean"), c.mean) << Describe(c.policy);
    EXPECT_EQ(Selects(rules, "head.queue"), c.queue) << Describe(c.policy);
  }
}

TEST(BufferRules, EqualsTheSentenceOfTheDesign) {
  const std::vector<std::string> pool = {"a", "a.*", "**.b", "re:b.*", "**", "c"};
  const std::vector<std::string> names = {"a", "a.b", "b", "b.b", "c", "d.e"};
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    SyncPolicy policy;
    for (const std::string& text : pool) {
      if (prng.Below(4) == 0) policy.allow_list.push_back(text);
      if (prng.Below(4) == 0) policy.ignore_list.push_back(text);
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferRules rules, BufferRules::Compile(policy));
    for (const std::string& name : names) {
      bool expected = policy.allow_list.empty();
      for (const auto& text : policy.allow_list) expected |= Pattern::Parse(text)->Matches(name);
      for (const auto& text : policy.ignore_list) {
        if (Pattern::Parse(text)->Matches(name)) expected = false;
      }
      EXPECT_EQ(Selects(rules, name), expected) << seed << " " << name;
    }
  }
}

TEST(BufferRules, RefusesAMalformedPolicy) {
  EXPECT_THAT(BufferRules::Compile({.ignore_list = {"re:["}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignore_list[0]")));
}

TEST(BufferRules, SaysWhyABufferIsExcluded) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const BufferRules rules,
      BufferRules::Compile({.allow_list = {"a", "b"}, .ignore_list = {"x", "b"}}));
  EXPECT_EQ(rules.Find("a").why, BufferMatch::Why::kTreated);
  EXPECT_EQ(rules.Find("b").why, BufferMatch::Why::kIgnored);
  EXPECT_EQ(rules.Find("b").pattern, 1);
  EXPECT_EQ(rules.Find("c").why, BufferMatch::Why::kNotAllowed);
}

TEST(BufferRules, TheFirstRuleThatMatchesDecides) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const BufferRules rules,
      BufferRules::Compile({.rules = {{.pattern = "**.count", .operation = Operation::kSum},
                                      {.pattern = "head.**", .operation = Operation::kNone},
                                      {.pattern = "**", .root = RootRank{2}}},
                            .operation = Operation::kMean}));
  EXPECT_EQ(rules.Find("head.count").treatment, 0);
  EXPECT_EQ(rules.Find("head.queue").treatment, 1);
  EXPECT_EQ(rules.Find("bn.running_mean").treatment, 2);
  ASSERT_EQ(rules.treatments().size(), 4u);
}

// Names are looked up, and the others tried: the order is that of the list.
TEST(BufferRules, ANameAndAPatternThatBothMatchKeepTheirOrder) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const BufferRules rules,
      BufferRules::Compile({.rules = {{.pattern = "a"}, {.pattern = "*"}, {.pattern = "b"},
                                      {.pattern = "a"}, {.pattern = "x.y"}, {.pattern = "**.y"}}}));
  EXPECT_EQ(rules.Find("a").treatment, 0);
  EXPECT_EQ(rules.Find("b").treatment, 1);
  EXPECT_EQ(rules.Find("x.y").treatment, 4);
  EXPECT_EQ(rules.Find("z.y").treatment, 5);
}

TEST(BufferRules, WhatARuleDoesNotSetIsThePolicys) {
  const Schedule rare = {.every_forwards = 0, .every_steps = 50};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const BufferRules rules,
      BufferRules::Compile(
          {.rules = {{.pattern = "a", .operation = Operation::kMax},
                     {.pattern = "b", .root = RootRank{2}},
                     {.pattern = "c", .schedule = Schedule{.before_evaluation = true}}},
           .operation = Operation::kMin,
           .root = RootWorker{"w1"},
           .schedule = rare}));
  const std::vector<Treatment>& all = rules.treatments();
  EXPECT_EQ(all[0].operation, Operation::kMax);
  EXPECT_EQ(all[0].root, Root(RootWorker{"w1"}));
  EXPECT_EQ(all[0].schedule, rare);
  EXPECT_EQ(all[1].operation, Operation::kMin);
  EXPECT_EQ(all[1].root, Root(RootRank{2}));
  EXPECT_TRUE(all[2].schedule.before_evaluation);
  EXPECT_EQ(all[2].schedule.every_steps, 0);
  EXPECT_EQ(rules.Find("d").treatment, 3);
  EXPECT_EQ(all[3].schedule, rare);
}

}  // namespace
}  // namespace lockstep
