#include "common/policy/near_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/policy/pattern.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kNoLimit = 1000;

// Levenshtein's definition, without a table.
int NaiveDistance(absl::string_view a, absl::string_view b) {
  if (a.empty()) return static_cast<int>(b.size());
  if (b.empty()) return static_cast<int>(a.size());
  const int replaced = NaiveDistance(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0 : 1);
  return std::min({replaced, NaiveDistance(a.substr(1), b) + 1, NaiveDistance(a, b.substr(1)) + 1});
}

std::string Draw(Prng& prng, const std::vector<std::string>& pieces) {
  std::string text;
  for (std::int64_t n = prng.Between(1, 6); n > 0; --n) text += pieces[prng.Below(pieces.size())];
  return text;
}

TEST(EditDistance, EqualsLevenshteinsDefinition) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    const std::string a = Draw(prng, {"a", "b", "."});
    const std::string b = Draw(prng, {"a", "b", "."});
    const int expected = NaiveDistance(a, b);
    EXPECT_EQ(EditDistance(a, b, kNoLimit), expected) << a << " " << b;
    EXPECT_EQ(EditDistance(a, b, expected), expected);
    EXPECT_EQ(EditDistance(a, b, expected - 1), std::nullopt);
  }
}

TEST(EditDistance, IsZeroWhereThePatternMatches) {
  int matches = 0;
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    Prng prng(seed);
    const std::string glob = Draw(prng, {"a", "b", ".", "*", "**."});
    const absl::StatusOr<Pattern> pattern = Pattern::Parse(glob);
    if (!pattern.ok()) continue;
    const std::string name = Draw(prng, {"a", "b", ".", "a."});
    if (!pattern->Matches(name)) continue;
    ++matches;
    EXPECT_EQ(EditDistance(glob, name, kNoLimit), 0) << glob << " " << name;
  }
  EXPECT_GT(matches, 100);
}

TEST(EditDistance, AStarTakesNoDotForFree) {
  EXPECT_EQ(EditDistance("a*c", "abbc", kNoLimit), 0);
  EXPECT_EQ(EditDistance("a*c", "ab.bc", kNoLimit), 1);
  EXPECT_EQ(EditDistance("a**c", "ab.bc", kNoLimit), 0);
}

TEST(NearNames, FindsWhatWasMeant) {
  const std::vector<absl::string_view> names = {
      "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked",
      "layer1.0.bn1.running_mean", "pos_ids"};
  const auto near = [&](absl::string_view pattern) { return NearNames(pattern, names, 2); };
  EXPECT_EQ(near("bn1.runing_mean"), (std::vector<std::string>{"bn1.running_mean", "bn1.running_var"}));
  EXPECT_EQ(near("**.runing_mean"),
            (std::vector<std::string>{"bn1.running_mean", "layer1.0.bn1.running_mean"}));
  EXPECT_EQ(near("bn2.*"),
            (std::vector<std::string>{"bn1.running_mean", "bn1.running_var"}));
  EXPECT_EQ(near("re:.*\\.pos_id"), (std::vector<std::string>{"pos_ids"}));
  EXPECT_EQ(near("something.else.entirely"), std::vector<std::string>{});
  EXPECT_EQ(NearNames("x", {}, 3), std::vector<std::string>{});
}

}  // namespace
}  // namespace lockstep
