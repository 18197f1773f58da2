#include "worker/device/host_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/combine/combine.h"
#include "worker/optim/squared_norm.h"

namespace lockstep {
namespace {

std::vector<float> Draw(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(prng.Unit() - 0.5);
  return values;
}

std::vector<std::byte> BytesOf(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

std::vector<const std::byte*> SourcesOf(const std::vector<std::vector<float>>& ranks) {
  std::vector<const std::byte*> sources;
  for (const auto& rank : ranks) {
    sources.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  }
  return sources;
}

TEST(HostMath, SumsToTheBitsOfATransport) {
  // Short values are what the bits of the long ones make.
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
    const std::int64_t elements = 5000;
    std::vector<std::vector<float>> ranks = {Draw(1, 5000), Draw(2, 5000), Draw(3, 5000)};
    if (dtype != DType::kFloat32) {
      for (auto& rank : ranks) {
        for (float& value : rank) {
          // Two finite values of either short type.
          value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xbfffbfffu);
        }
      }
    }
    const std::vector<const std::byte*> sources = SourcesOf(ranks);
    const std::vector<float> weights = {0.3f, 0, 7};
    std::vector<float> expected(elements);
    WeightedSum(dtype, sources, weights, elements,
                [&](std::int64_t begin, std::span<const float> sums) {
                  std::ranges::copy(sums, expected.begin() + begin);
                });
    HostMath math;
    std::vector<float> sums(elements, -1);
    LOCKSTEP_ASSERT_OK(math.WeightedSum(dtype, sources, weights, elements, sums.data()));
    EXPECT_EQ(BytesOf(sums), BytesOf(expected)) << DTypeName(dtype);
    EXPECT_NE(sums[17], 0) << DTypeName(dtype);
  }
}

TEST(HostMath, SumsIntoAnyOfItsSources) {
  HostMath math;
  for (std::size_t into = 0; into < 3; ++into) {
    std::vector<std::vector<float>> ranks = {Draw(1, 3000), Draw(2, 3000), Draw(3, 3000)};
    std::vector<float> expected(3000);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 2.0f * ranks[0][i];
      expected[i] += 0.1f * ranks[1][i];
      expected[i] += 3.0f * ranks[2][i];
    }
    const std::vector<const std::byte*> sources = SourcesOf(ranks);
    LOCKSTEP_ASSERT_OK(math.WeightedSum(DType::kFloat32, sources, std::vector<float>{2, 0.1f, 3},
                                        3000, ranks[into].data()));
    EXPECT_EQ(BytesOf(ranks[into]), BytesOf(expected)) << into;
  }
}

TEST(HostMath, AddsSquaresInPartsAsAtOnce) {
  const std::vector<float> values = Draw(4, 1003);
  SquaredNorm expected;
  expected.Add(values);
  HostMath math;
  const auto squares = math.MakeSumOfSquares();
  const std::span<const float> all = values;
  LOCKSTEP_ASSERT_OK(squares->Add(all.first(7)));
  LOCKSTEP_ASSERT_OK(squares->Add(all.subspan(7, 0)));
  LOCKSTEP_ASSERT_OK(squares->Add(all.subspan(7)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double sum, squares->Sum());
  EXPECT_EQ(sum, expected.sum());
  LOCKSTEP_ASSERT_OK(squares->Add(std::vector<float>{std::numeric_limits<float>::infinity()}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double infinite, squares->Sum());
  EXPECT_TRUE(std::isinf(infinite));
}

TEST(HostMath, MemoryIsZeroedAndLivesAsLongAsAPointerToIt) {
  HostMath math;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::shared_ptr<float[]> memory, math.Allocate(1000));
  EXPECT_EQ(std::count(memory.get(), memory.get() + 1000, 0.0f), 1000);
  std::shared_ptr<float[]> second = memory;
  memory.reset();
  const std::vector<float> values = Draw(5, 1000);
  LOCKSTEP_ASSERT_OK(math.Copy(values, second.get()));
  EXPECT_EQ(BytesOf({second.get(), 1000}), BytesOf(values));
}

TEST(HostMath, TheHostReadsItsMemoryWhereItLies) {
  HostMath math;
  const std::vector<float> values = Draw(6, 10);
  std::vector<std::byte> scratch;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto bytes,
                                math.ToHost(std::as_bytes(std::span(values)), scratch));
  std::vector<float> back(values.size());
  LOCKSTEP_ASSERT_OK(math.FromHost(bytes, reinterpret_cast<std::byte*>(back.data())));
  EXPECT_EQ(back, values);
  EXPECT_EQ(static_cast<const void*>(bytes.data()), values.data());
  EXPECT_EQ(bytes.size(), 40);
  EXPECT_TRUE(scratch.empty());
}

TEST(HostMath, ItsOptimizerIsTheShardOptimizer) {
  HostMath math;
  const AdamW config = {.lr = 0.1, .groups = {{.pattern = "b", .weight_decay = 0.5}}};
  const std::vector<GroupRange> ranges = {{0, 40, kNoGroup}, {40, 64, 0}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto made, math.MakeOptimizer(config, ranges, 64));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto expected, ShardOptimizer::Create(config, ranges, 64));
  std::vector<float> ours = Draw(7, 64);
  std::vector<float> theirs = ours;
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> gradients = Draw(10 + step, 64);
    LOCKSTEP_ASSERT_OK(made->Step(gradients, 0.5f, ours));
    LOCKSTEP_ASSERT_OK(expected->Step(gradients, 0.5f, theirs));
  }
  EXPECT_EQ(BytesOf(ours), BytesOf(theirs));
  EXPECT_NE(BytesOf(ours), BytesOf(Draw(7, 64)));
  EXPECT_FALSE(math.MakeOptimizer(AdamW{.lr = -1}, ranges, 64).ok());
}

}  // namespace
}  // namespace lockstep
