#include "common/sharding/shard_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/manifest/random_manifest.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

Manifest Trainable(const std::vector<std::int64_t>& sizes) {
  Manifest manifest;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    manifest.parameters.push_back(
        {.tensor = {"p" + std::to_string(i), DType::kFloat32, {sizes[i]}}});
  }
  return manifest;
}

TEST(PlanShards, PlacesTensorsOnCacheLinesAndCutsEvenly) {
  const ShardPlan expected = {
      .flat_elements = 64,
      .blocks = {{DType::kFloat32, 0, 64}},
      .placements = {{"p0", 0, 1}, {"p1", 16, 17}, {"p2", 48, 16}},
      .shards = {{0, 32}, {32, 48}, {48, 64}},
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(Trainable({1, 17, 16}), 3));
  EXPECT_EQ(plan, expected);
}

TEST(PlanShards, PutsParametersOfOneTypeIntoOneBlock) {
  Manifest manifest = Trainable({17, 3, 16, 5});
  manifest.parameters[0].tensor.dtype = DType::kFloat16;
  manifest.parameters[1].tensor.dtype = DType::kBfloat16;
  manifest.parameters[3].tensor.dtype = DType::kBfloat16;
  const ShardPlan expected = {
      .flat_elements = 80,
      .blocks = {{DType::kFloat32, 0, 16}, {DType::kBfloat16, 16, 48}, {DType::kFloat16, 48, 80}},
      .placements = {{"p2", 0, 16}, {"p1", 16, 3}, {"p3", 32, 5}, {"p0", 48, 17}},
      .shards = {{0, 48}, {48, 80}},
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 2));
  EXPECT_EQ(plan, expected);
  LOCKSTEP_EXPECT_OK(Validate(plan));
}

TEST(ShardsWithin, IsEachShardsPartOfABlock) {
  Manifest manifest = Trainable({48, 32});
  manifest.parameters[1].tensor.dtype = DType::kBfloat16;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 5));
  EXPECT_EQ(ShardsWithin(plan, plan.blocks[0]),
            (std::vector<Shard>{{0, 16}, {16, 32}, {32, 48}, {48, 48}, {48, 48}}));
  EXPECT_EQ(ShardsWithin(plan, plan.blocks[1]),
            (std::vector<Shard>{{0, 0}, {0, 0}, {0, 0}, {0, 16}, {16, 32}}));
  // One that reaches over the border.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan two, PlanShards(manifest, 2));
  EXPECT_EQ(ShardsWithin(two, two.blocks[0]), (std::vector<Shard>{{0, 48}, {48, 48}}));
  EXPECT_EQ(ShardsWithin(two, two.blocks[1]), (std::vector<Shard>{{0, 0}, {0, 32}}));
}

TEST(BlockAt, IsTheBlockOfAnElement) {
  const ShardPlan plan = {.blocks = {{DType::kFloat32, 0, 16}, {DType::kFloat16, 16, 48}}};
  EXPECT_EQ(BlockAt(plan, 0), 0);
  EXPECT_EQ(BlockAt(plan, 15), 0);
  EXPECT_EQ(BlockAt(plan, 16), 1);
  EXPECT_EQ(BlockAt(plan, 47), 1);
  EXPECT_EQ(BlockAt(plan, 48), 2);
  EXPECT_EQ(BlockAt({}, 0), 0);
}

TEST(PlanShards, LeavesFrozenParametersOut) {
  Manifest manifest = Trainable({16, 16});
  manifest.parameters[0].trainable = false;
  manifest.parameters[0].tensor.dtype = DType::kInt64;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, 1));
  EXPECT_EQ(plan.placements, (std::vector<Placement>{{"p1", 0, 16}}));
}

TEST(PlanShards, GivesEmptyShardsWhereThereIsTooLittle) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(Trainable({3}), 3));
  EXPECT_EQ(plan.shards, (std::vector<Shard>{{0, 16}, {16, 16}, {16, 16}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan empty, PlanShards(Manifest{}, 2));
  EXPECT_EQ(empty.shards, (std::vector<Shard>{{0, 0}, {0, 0}}));
}

// Deals cache lines one by one: counts, then lays out.
std::vector<Shard> NaiveShards(std::int64_t flat_elements, int world_size) {
  std::vector<std::int64_t> lines(world_size);
  for (std::int64_t line = 0; line < flat_elements / 16; ++line) ++lines[line % world_size];
  std::vector<Shard> shards;
  std::int64_t begin = 0;
  for (const std::int64_t count : lines) {
    shards.push_back({begin, begin + 16 * count});
    begin += 16 * count;
  }
  return shards;
}

TEST(PlanShards, EqualsANaivePlanAndGivesEveryElementOneOwner) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Prng prng(seed);
    Manifest manifest;
    std::int64_t padded = 0;
    const std::int64_t tensors = prng.Between(0, 20);
    for (int i = 0; i < tensors; ++i) {
      const std::int64_t size = prng.Between(0, 200);
      manifest.parameters.push_back(
          {.tensor = {"p" + std::to_string(i), DType::kFloat32, {size}}});
      padded += (size + 15) / 16 * 16;
    }
    const int world_size = static_cast<int>(prng.Between(1, 9));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardPlan plan, PlanShards(manifest, world_size));
    LOCKSTEP_EXPECT_OK(Validate(plan));
    EXPECT_EQ(plan.flat_elements, padded) << seed;
    EXPECT_EQ(plan.shards, NaiveShards(padded, world_size)) << seed;

    std::vector<int> owners(padded);
    std::int64_t least = padded;
    std::int64_t most = 0;
    for (const Shard& shard : plan.shards) {
      for (std::int64_t i = shard.begin; i < shard.end; ++i) ++owners[i];
      least = std::min(least, shard.elements());
      most = std::max(most, shard.elements());
    }
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), padded) << seed;
    EXPECT_LE(most - least, kAlignElements) << seed;

    std::vector<int> users(padded);
    for (const Placement& placement : plan.placements) {
      EXPECT_EQ(placement.offset % kAlignElements, 0) << seed;
      for (std::int64_t i = 0; i < placement.elements; ++i) ++users[placement.offset + i];
    }
    EXPECT_EQ(std::count_if(users.begin(), users.end(), [](int n) { return n > 1; }), 0) << seed;
  }
}

TEST(PlanShards, TakesTheLargestSpaceOverTheLargestWorld) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const ShardPlan plan, PlanShards(Trainable({(std::int64_t{1} << 61) - 16}), kMaxWorldSize));
  LOCKSTEP_EXPECT_OK(Validate(plan));
}

TEST(PlanShards, RefusesWhatItCannotShard) {
  for (const int world_size : {-1, 0, kMaxWorldSize + 1}) {
    EXPECT_THAT(PlanShards(Trainable({1}), world_size),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::to_string(world_size) + " ranks")));
  }
  Manifest whole = Trainable({1, 2});
  whole.parameters[1].tensor.dtype = DType::kFloat64;
  EXPECT_THAT(PlanShards(whole, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'p1' is float64[2]")));
  EXPECT_THAT(PlanShards(whole, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("freeze it")));
  EXPECT_THAT(PlanShards(Trainable({INT64_MAX}), 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'p0'")));
}

TEST(ShardPlan, DigestTellsPlansApart) {
  const ShardPlan plan = *PlanShards(Trainable({1, 17, 16}), 3);
  EXPECT_EQ(plan.Digest(), PlanShards(Trainable({1, 17, 16}), 3)->Digest());
  EXPECT_NE(plan.Digest(), PlanShards(Trainable({1, 17, 16}), 2)->Digest());
  EXPECT_NE(plan.Digest(), PlanShards(Trainable({2, 17, 16}), 3)->Digest());
  ShardPlan renamed = plan;
  renamed.placements[1].name = "q1";
  EXPECT_NE(plan.Digest(), renamed.Digest());
}

TEST(ValidatePlan, SaysWhatIsWrong) {
  struct Case {
    void (*change)(ShardPlan&);
    std::string word;
  };
  const std::vector<Case> cases = {
      {[](ShardPlan& p) { p.flat_elements = -16; }, "flat space has -16"},
      {[](ShardPlan& p) { p.flat_elements = 65; }, "flat space has 65"},
      {[](ShardPlan& p) { p.shards.clear(); }, "0 shards"},
      {[](ShardPlan& p) { p.shards.resize(kMaxWorldSize + 1); }, "10001 shards"},
      {[](ShardPlan& p) { p.shards.pop_back(); }, "end at 48"},
      {[](ShardPlan& p) { p.shards[1].begin = 16; }, "rank 1 is [16, 48)"},
      {[](ShardPlan& p) { p.shards[1].begin = 48; }, "rank 1 is [48, 48)"},
      {[](ShardPlan& p) { p.shards[0].end = -16; }, "rank 0 is [0, -16)"},
      {[](ShardPlan& p) { p.shards[0].end = p.shards[1].begin = 33; }, "rank 0 is [0, 33)"},
      {[](ShardPlan& p) { p.blocks.clear(); }, "blocks end at 0"},
      {[](ShardPlan& p) { p.blocks[0].begin = 16; }, "expected one of a type that can be trained"},
      {[](ShardPlan& p) { p.blocks[0].end = 63; }, "block of float32 is [0, 63)"},
      {[](ShardPlan& p) { p.blocks[0].dtype = DType::kInt8; }, "block of int8"},
      {[](ShardPlan& p) {
         p.blocks = {{DType::kFloat32, 0, 32}, {DType::kBfloat16, 32, 64}};
         p.placements[1].offset = 16;
       }, "'p1' is placed at 16 with 17 elements"},
      {[](ShardPlan& p) { p.placements[1].offset = 0; }, "'p1' is placed at 0"},
      {[](ShardPlan& p) { p.placements[1].offset = 17; }, "'p1' is placed at 17"},
      {[](ShardPlan& p) { p.placements[1].elements = -1; }, "'p1'"},
      {[](ShardPlan& p) { p.placements[1].elements = 40; }, "'p2' is placed at 48"},
      {[](ShardPlan& p) { p.placements[2].elements = 17; }, "'p2'"},
      {[](ShardPlan& p) { p.placements[2].elements = INT64_MAX; }, "'p2'"},
  };
  for (const Case& c : cases) {
    ShardPlan plan = *PlanShards(Trainable({1, 17, 16}), 3);
    LOCKSTEP_ASSERT_OK(Validate(plan));
    c.change(plan);
    EXPECT_THAT(Validate(plan), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.word)));
  }
}

}  // namespace
}  // namespace lockstep
