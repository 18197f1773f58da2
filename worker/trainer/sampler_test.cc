#include "worker/trainer/sampler.h"

#include "common/base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::vector<Sampler> AllRanks(std::int64_t images, std::int64_t batch, int world_size,
                              std::uint64_t seed) {
  std::vector<Sampler> samplers;
  for (int rank = 0; rank < world_size; ++rank) {
    samplers.emplace_back(images, batch, rank, world_size, seed);
  }
  return samplers;
}

TEST(Sampler, EveryImageComesOncePerEpochOverAllRanks) {
  Prng prng(1);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t images = prng.Between(1, 200);
    const std::int64_t batch = prng.Between(1, 20);
    const int world_size = static_cast<int>(prng.Between(1, 5));
    std::vector<Sampler> samplers = AllRanks(images, batch, world_size, prng.Next());
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(images);
      for (std::int64_t i = 0; i < samplers[0].steps_per_epoch(); ++i) {
        std::int64_t in_step = 0;
        for (Sampler& sampler : samplers) {
          const auto indices = sampler.Batch(epoch * sampler.steps_per_epoch() + i);
          ASSERT_LE(indices.size(), static_cast<std::size_t>(batch + 1));
          ASSERT_TRUE(indices.size() != 1 || batch == 1 || images == 1);
          for (const std::int64_t index : indices) ++seen[index];
          in_step += static_cast<std::int64_t>(indices.size());
        }
        ASSERT_GT(in_step, 0) << "a step without a sample is refused";
      }
      ASSERT_THAT(seen, testing::Each(1))
          << images << " images, batch " << batch << ", " << world_size << " ranks";
    }
  }
}

TEST(Sampler, TheLastStepIsUneven) {
  std::vector<Sampler> samplers = AllRanks(/*images=*/70, /*batch=*/10, /*world_size=*/4, 1);
  EXPECT_EQ(samplers[0].steps_per_epoch(), 2);
  EXPECT_EQ(samplers[2].Batch(1).size(), 10u);
  EXPECT_EQ(samplers[3].Batch(1).size(), 0u);
  EXPECT_EQ(samplers[3].Batch(2).size(), 10u);
}

TEST(Sampler, OrderDependsOnSeedAndEpochAlone) {
  const auto first = [](std::uint64_t seed, std::int64_t step) {
    Sampler sampler(1000, 10, 0, 1, seed);
    const auto batch = sampler.Batch(step);
    return std::vector<std::int64_t>(batch.begin(), batch.end());
  };
  EXPECT_EQ(first(1, 0), first(1, 0));
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1, 100));
  Sampler sampler(1000, 10, 0, 1, 1);
  sampler.Batch(250);
  EXPECT_THAT(sampler.Batch(0), testing::ElementsAreArray(first(1, 0)));
}

}  // namespace
}  // namespace lockstep
