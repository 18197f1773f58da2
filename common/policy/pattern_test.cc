#include "common/policy/pattern.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Pattern, MatchesAsItsFormSays) {
  struct Case {
    std::string pattern;
    std::vector<std::string> matches;
    std::vector<std::string> others;
  };
  const std::vector<Case> cases = {
      {"bn1.running_mean", {"bn1.running_mean"}, {"bn1xrunning_mean", "bn1.running_mean2", "a.bn1.running_mean"}},
      {"bn1.*", {"bn1.running_mean", "bn1."}, {"bn1", "bn1.a.b", "bn10.x"}},
      {"*.x", {"a.x", ".x"}, {"x", "a.b.x"}},
      {"bn*.running_*", {"bn1.running_var", "bn.running_"}, {"bn1.a.running_var"}},
      {"**", {"x", "a.b.c", ""}, {}},
      {"**.x", {"x", "a.x", "a.b.x"}, {"ax", "x.a", "a.xx"}},
      {"a.**.x", {"a.x", "a.b.x", "a.b.c.x"}, {"ax", "x", "b.a.x"}},
      {"a**", {"a", "ab", "a.b.c"}, {"b"}},
      {"a**.x", {"a.x", "ab.c.x"}, {"ax", "x"}},
      {"**x", {"x", "a.x", "a.bx"}, {"a.xb"}},
      {"a.**", {"a.b", "a.b.c"}, {"a", "ab"}},
      {"w[0]?", {"w[0]?"}, {"w0a", "w[0]"}},
      {"schicht.größe_*", {"schicht.größe_ü"}, {"schicht.groesse_x"}},
      {"re:bn\\d+\\.running_(mean|var)", {"bn12.running_var"}, {"bn.running_var", "a.bn1.running_var", "bn1.running_var2"}},
      {"re:a|b", {"a", "b"}, {"ab", "ax"}},
      {"re:gr.ße", {"größe"}, {"grße"}},
      {"re:.*", {"a.b", ""}, {}},
      {"re", {"re"}, {"re:"}},
  };
  for (const Case& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Parse(c.pattern));
    EXPECT_EQ(pattern.text(), c.pattern);
    for (const auto& name : c.matches) EXPECT_TRUE(pattern.Matches(name)) << c.pattern << " " << name;
    for (const auto& name : c.others) EXPECT_FALSE(pattern.Matches(name)) << c.pattern << " " << name;
  }
}

TEST(Pattern, RefusesWhatItCannotParseAndQuotesIt) {
  struct Case {
    std::string pattern;
    std::string words;
  };
  const std::vector<Case> cases = {
      {"", "the pattern is empty"},
      {"re:", "'re:' has no expression"},
      {"re:bn(1", "'re:bn(1' is not a valid RE2 expression: missing ): bn(1"},
      {"re:(?=x)", "invalid perl operator"},
      {"re:((a{100}){100}){100}", "not a valid RE2 expression"},
      {"re:(\\pL{500}){2}", "pattern too large"},
      // RE2's own limit would take this one.
      {"re:\\pL{100}", "pattern too large"},
      {"a***", "three stars in a row at byte 1"},
      {std::string(kMaxPatternBytes + 1, 'a'), "has 1025 bytes; at most 1024"},
      {"a\nb", "'a\\nb' holds control"},
      {"a\xff", "malformed UTF-8"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Pattern::Parse(c.pattern),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

TEST(Pattern, TheLongestGlobsFitIntoTheMemoryLimit) {
  std::string stars;
  while (stars.size() + 2 <= kMaxPatternBytes) stars += "*a";
  LOCKSTEP_EXPECT_OK(Pattern::Parse(stars));
  std::string components;
  while (components.size() + 4 <= kMaxPatternBytes) components += "**.a";
  LOCKSTEP_EXPECT_OK(Pattern::Parse(components));
}

// The definition, word by word.
bool NaiveMatches(absl::string_view glob, absl::string_view name, bool starts_component = true) {
  if (glob.empty()) return name.empty();
  if (starts_component && absl::StartsWith(glob, "**.")) {
    if (NaiveMatches(glob.substr(3), name, true)) return true;
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '.' && NaiveMatches(glob.substr(3), name.substr(i + 1), true)) return true;
    }
    return false;
  }
  if (glob[0] == '*') {
    const bool across = absl::StartsWith(glob, "**");
    for (std::size_t i = 0; i <= name.size(); ++i) {
      if (NaiveMatches(glob.substr(across ? 2 : 1), name.substr(i), false)) return true;
      if (i < name.size() && name[i] == '.' && !across) return false;
    }
    return false;
  }
  return !name.empty() && name[0] == glob[0] &&
         NaiveMatches(glob.substr(1), name.substr(1), glob[0] == '.');
}

TEST(Pattern, EqualsANaiveMatcher) {
  int matches = 0;
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    Prng prng(seed);
    const auto draw = [&](std::vector<std::string> pieces) {
      std::string text;
      for (std::int64_t n = prng.Between(1, 6); n > 0; --n) {
        text += pieces[prng.Below(pieces.size())];
      }
      return text;
    };
    const std::string glob = draw({"a", "b", ".", "*", "**", "**.", "ü"});
    if (absl::StrContains(glob, "***")) continue;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Pattern pattern, Pattern::Parse(glob));
    for (int i = 0; i < 20; ++i) {
      const std::string name = draw({"a", "b", ".", "a.", "ü"});
      EXPECT_EQ(pattern.Matches(name), NaiveMatches(glob, name)) << glob << " on " << name;
      matches += pattern.Matches(name);
    }
  }
  EXPECT_GT(matches, 5000);
}

}  // namespace
}  // namespace lockstep
