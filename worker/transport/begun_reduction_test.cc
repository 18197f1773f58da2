#include "worker/transport/begun_reduction.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ReadyRanges, CoverWhatWasAddedInAnyOrder) {
  constexpr int kEnd = 40;
  for (int seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    ReadyRanges ranges;
    std::vector<bool> naive(kEnd);
    for (int i = 0; i < 15; ++i) {
      const std::int64_t begin = prng.Between(0, kEnd);
      const std::int64_t end = prng.Between(begin, std::min<std::int64_t>(begin + 8, kEnd));
      ranges.Add(begin, end);
      std::fill(naive.begin() + begin, naive.begin() + end, true);
      for (int from = 0; from <= kEnd; ++from) {
        for (int to = from; to <= kEnd; ++to) {
          ASSERT_EQ(ranges.Covers(from, to),
                    std::all_of(naive.begin() + from, naive.begin() + to, [](bool b) { return b; }))
              << "seed " << seed << ", [" << from << ", " << to << ")";
        }
      }
    }
  }
}

// Of two arenas of 100 and 10 elements, for two ranks; the second arena's sums lie apart.
class BegunReductionTest : public testing::Test {
 protected:
  BegunReductionTest() : floats_(100), shorts_(20) {
    begun_.Begin({{.arena = 3, .gradients = first_, .shards = {{0, 25}, {30, 100}}},
                  {.arena = 5,
                   .gradients = second_,
                   .shards = {{0, 4}, {4, 10}},
                   .short_sums = sums_}},
                 /*slice_bytes=*/80);
  }

  std::vector<float> floats_;
  std::vector<std::byte> shorts_;
  const std::shared_ptr<float[]> sums_ = std::make_shared<float[]>(6);
  const Arena first_ = {.dtype = DType::kFloat32,
                        .data = reinterpret_cast<std::byte*>(floats_.data()),
                        .elements = 100};
  const Arena second_ = {.dtype = DType::kBfloat16, .data = shorts_.data(), .elements = 10};
  BegunReduction begun_{/*rank=*/1};
};

TEST_F(BegunReductionTest, SlicesAreCountedFromTheEndOfTheLastArenaAndAreOfOneOwner) {
  std::vector<std::tuple<std::size_t, int, std::int64_t, std::int64_t>> slices;
  for (const BegunReduction::Slice& slice : begun_.slices()) {
    slices.emplace_back(slice.part, slice.owner, slice.elements.begin, slice.elements.end);
  }
  EXPECT_THAT(slices, testing::ElementsAre(
                          std::tuple(1, 1, 4, 10), std::tuple(1, 0, 0, 4),
                          std::tuple(0, 1, 80, 100), std::tuple(0, 1, 60, 80),
                          std::tuple(0, 1, 40, 60), std::tuple(0, 1, 30, 40),
                          std::tuple(0, 0, 5, 25), std::tuple(0, 0, 0, 5)));
}

TEST_F(BegunReductionTest, SumsLieInTheArenaOrBesideIt) {
  EXPECT_EQ(begun_.RoomForSums(begun_.slices()[0]), sums_.get());
  EXPECT_EQ(begun_.RoomForSums(begun_.slices()[3]), floats_.data() + 60);
  const std::span<const float> in_arena = begun_.UseUp(3);
  EXPECT_EQ(in_arena.data(), floats_.data() + 30);
  EXPECT_EQ(in_arena.size(), 70u);
  const std::span<const float> beside = begun_.UseUp(5);
  EXPECT_EQ(beside.data(), sums_.get());
  EXPECT_EQ(beside.size(), 6u);
}

TEST_F(BegunReductionTest, SumsAreThereUntilTheyAreUsedUpOrDropped) {
  EXPECT_TRUE(begun_.Has(3));
  EXPECT_FALSE(begun_.Has(4));
  begun_.UseUp(3);
  EXPECT_FALSE(begun_.Has(3));
  EXPECT_TRUE(begun_.has_parts());
  begun_.Drop();
  EXPECT_FALSE(begun_.Has(5));
  EXPECT_FALSE(begun_.has_parts());
}

TEST_F(BegunReductionTest, AnEndOtherThanTheBeginningIsAnError) {
  begun_.SetWeights({1, 2});
  const std::vector<Shard> shards = {{0, 25}, {30, 100}};
  const std::vector<Shard> others = {{0, 30}, {30, 100}};
  LOCKSTEP_EXPECT_OK(begun_.CheckEnd(3, shards, std::vector<float>{1, 2}));
  EXPECT_THAT(begun_.CheckEnd(3, others, std::vector<float>{1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("arena 3")));
  EXPECT_THAT(begun_.CheckEnd(3, shards, std::vector<float>{2, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  // Nothing was begun of it any more.
  begun_.UseUp(3);
  LOCKSTEP_EXPECT_OK(begun_.CheckEnd(3, others, std::vector<float>{2, 2}));
}

TEST_F(BegunReductionTest, ThePartThatIsNotReadyIsNamed) {
  std::vector<ReadyRanges> ready(2);
  ready[*begun_.PartOf(first_)].Add(0, 100);
  ready[*begun_.PartOf(second_)].Add(1, 10);
  EXPECT_THAT(begun_.CheckAllReady(ready),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("arena 5")));
  ready[*begun_.PartOf(second_)].Add(0, 1);
  LOCKSTEP_EXPECT_OK(begun_.CheckAllReady(ready));
  EXPECT_EQ(begun_.PartOf(Arena{}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
