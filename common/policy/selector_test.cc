#include "common/policy/selector.h"

#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(BufferSelector, SelectsAllByDefaultAndIgnoresFirst) {
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
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferSelector selector,
                                  BufferSelector::Compile(c.policy));
    EXPECT_EQ(selector.Selects("bn1.running_mean"), c.mean) << Describe(c.policy);
    EXPECT_EQ(selector.Selects("head.queue"), c.queue) << Describe(c.policy);
  }
}

TEST(BufferSelector, EqualsTheSentenceOfTheDesign) {
  const std::vector<std::string> pool = {"a", "a.*", "**.b", "re:b.*", "**", "c"};
  const std::vector<std::string> names = {"a", "a.b", "b", "b.b", "c", "d.e"};
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    SyncPolicy policy;
    for (const std::string& text : pool) {
      if (prng.Below(4) == 0) policy.allow_list.push_back(text);
      if (prng.Below(4) == 0) policy.ignore_list.push_back(text);
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const BufferSelector selector, BufferSelector::Compile(policy));
    for (const std::string& name : names) {
      bool expected = policy.allow_list.empty();
      for (const auto& text : policy.allow_list) expected |= Pattern::Parse(text)->Matches(name);
      for (const auto& text : policy.ignore_list) {
        if (Pattern::Parse(text)->Matches(name)) expected = false;
      }
      EXPECT_EQ(selector.Selects(name), expected) << seed << " " << name;
    }
  }
}

TEST(BufferSelector, RefusesAMalformedPolicy) {
  EXPECT_THAT(BufferSelector::Compile({.ignore_list = {"re:["}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignore_list[0]")));
}

}  // namespace
}  // namespace lockstep
