#include "worker/optim/parameter_groups.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Manifest ModelOf(const std::vector<std::pair<std::string, std::int64_t>>& parameters) {
  Manifest manifest;
  for (const auto& [name, elements] : parameters) {
    manifest.parameters.push_back(
        {.tensor = {.name = name, .dtype = DType::kFloat32, .shape = {elements}}});
  }
  return manifest;
}

// Of one rank of `world_size`.
std::vector<GroupRange> Ranges(const OptimizerConfig& config, const Manifest& manifest,
                               int world_size, int rank) {
  const absl::StatusOr<ShardPlan> plan = PlanShards(manifest, world_size);
  EXPECT_THAT(plan, IsOk());
  const auto ranges = GroupRangesOf(config, manifest, *plan, rank);
  EXPECT_THAT(ranges, IsOk());
  return *ranges;
}

const OptimizerConfig kNoDecayOfBiasesAndNorms =
    AdamW{.groups = {{.pattern = "**.bias", .weight_decay = 0},
                     {.pattern = "**.bn*.weight", .weight_decay = 0}}};

TEST(GroupRanges, AreTheLongestOfOneGroupAndThePaddingGoesWithTheParameterBeforeIt) {
  const Manifest manifest = ModelOf({{"conv.weight", 40},       // 0 to 48
                                     {"conv.bias", 3},          // to 64
                                     {"layer.bn1.bias", 5},     // to 80
                                     {"layer.bn1.weight", 16},  // to 96
                                     {"fc.weight", 1},          // to 112
                                     {"fc2.weight", 10}});      // to 128
  EXPECT_THAT(Ranges(kNoDecayOfBiasesAndNorms, manifest, 1, 0),
              ElementsAre(GroupRange{0, 48, kNoGroup}, GroupRange{48, 80, 0},
                          GroupRange{80, 96, 1}, GroupRange{96, 128, kNoGroup}));
  EXPECT_THAT(Ranges(kNoDecayOfBiasesAndNorms, manifest, 2, 0),
              ElementsAre(GroupRange{0, 48, kNoGroup}, GroupRange{48, 64, 0}));
  EXPECT_THAT(Ranges(kNoDecayOfBiasesAndNorms, manifest, 2, 1),
              ElementsAre(GroupRange{0, 16, 0}, GroupRange{16, 32, 1},
                          GroupRange{32, 64, kNoGroup}));
  EXPECT_THAT(Ranges(AdamW{}, manifest, 1, 0), ElementsAre(GroupRange{0, 128, kNoGroup}));
}

TEST(GroupRanges, TheFirstGroupThatMatchesCounts) {
  const Manifest manifest = ModelOf({{"a.bias", 16}, {"b.bias", 16}});
  EXPECT_THAT(Ranges(Sgd{.groups = {{.pattern = "b.*"}, {.pattern = "**.bias"}}}, manifest, 1, 0),
              ElementsAre(GroupRange{0, 16, 1}, GroupRange{16, 32, 0}));
  EXPECT_THAT(Ranges(Sgd{.groups = {{.pattern = "**.bias"}, {.pattern = "b.*"}}}, manifest, 1, 0),
              ElementsAre(GroupRange{0, 32, 0}));
}

// Every element of the flat space has the group of its parameter, by a second way.
TEST(GroupRanges, OfAllShardsTogetherGiveEachElementTheGroupOfItsParameter) {
  const std::vector<ParameterGroup> groups = {{.pattern = "a*"}, {.pattern = "*b"}};
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    std::vector<std::pair<std::string, std::int64_t>> parameters = {{"a0", 1}, {"0b", 1}};
    std::vector<int> expected;
    for (int n = static_cast<int>(prng.Between(0, 12)); n > 0; --n) {
      const std::string prefix = prng.Below(3) == 0 ? "a" : "c";
      const std::string suffix = prng.Below(2) == 0 ? "b" : "d";
      parameters.emplace_back(absl::StrCat(prefix, n, suffix), prng.Between(0, 50));
    }
    for (const auto& [name, elements] : parameters) {
      const int group = name[0] == 'a' ? 0 : name.back() == 'b' ? 1 : kNoGroup;
      expected.insert(expected.end(), (elements + 15) / 16 * 16, group);
    }
    const Manifest manifest = ModelOf(parameters);
    const int world_size = static_cast<int>(prng.Between(1, 6));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, world_size));
    std::vector<int> found;
    for (int rank = 0; rank < world_size; ++rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const std::vector<GroupRange> ranges,
          GroupRangesOf(Sgd{.groups = groups}, manifest, plan, rank));
      std::int64_t end = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        ASSERT_EQ(ranges[i].begin, end) << "seed " << seed;
        if (i > 0) {
          EXPECT_NE(ranges[i].group, ranges[i - 1].group) << "seed " << seed;
        }
        end = ranges[i].end;
        found.insert(found.end(), ranges[i].end - ranges[i].begin, ranges[i].group);
      }
      ASSERT_EQ(end, plan.shards[rank].elements()) << "seed " << seed;
    }
    ASSERT_EQ(found, expected) << "seed " << seed;
  }
}

TEST(GroupRanges, OfAnEmptyShardAreNone) {
  const Manifest manifest = ModelOf({{"a", 16}});
  EXPECT_THAT(Ranges(Sgd{}, manifest, 3, 2), IsEmpty());
}

TEST(CheckGroupsMatch, NamesThePatternsThatMatchNothingAndWhatWasMeant) {
  const Manifest manifest = ModelOf({{"fc.weight", 4}, {"fc.bias", 4}});
  EXPECT_THAT(CheckGroupsMatch(AdamW{.groups = {{.pattern = "**.weight"},
                                                {.pattern = "**.bais"},
                                                {.pattern = "something.else.entirely"}}},
                               manifest),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("groups[1].pattern '**.bais' matches no parameter; near "
                                       "names: fc.bias"),
                             HasSubstr("groups[2].pattern 'something.else.entirely' matches"),
                             HasSubstr("2 parameters"), Not(HasSubstr("groups[0]")))));
  std::vector<ParameterGroup> many(9, {.pattern = "absent"});
  EXPECT_THAT(CheckGroupsMatch(AdamW{.groups = many}, manifest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 more patterns")));
}

TEST(CheckGroupsMatch, AFrozenParameterIsMatchedToo) {
  Manifest manifest = ModelOf({{"body.weight", 4}, {"head.weight", 4}});
  manifest.parameters[0].trainable = false;
  LOCKSTEP_EXPECT_OK(CheckGroupsMatch(Sgd{.groups = {{.pattern = "body.*"}}}, manifest));
}

}  // namespace
}  // namespace lockstep
