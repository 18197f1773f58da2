#include "worker/trainer/sampler.h"

#include "common/base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Sampler, EveryImageComesOncePerEpochWhateverTheNumberOfRanks) {
  Prng prng(1);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t images = prng.Between(1, 200);
    const std::int64_t batch = prng.Between(1, 20);
    const bool changes = prng.Below(2) == 0;
    int world_size = static_cast<int>(prng.Between(1, 5));
    Sampler sampler(images, batch, prng.Next());
    std::int64_t samples = 0;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> seen(images);
      std::int64_t steps = 0;
      while (samples < (epoch + 1) * images) {
        std::int64_t in_step = 0;
        for (int rank = 0; rank < world_size; ++rank) {
          const auto indices = sampler.Batch(samples, rank);
          ASSERT_LE(indices.size(), static_cast<std::size_t>(batch + 1));
          ASSERT_TRUE(indices.size() != 1 || batch == 1 || images == 1);
          for (const std::int64_t index : indices) ++seen[index];
          in_step += static_cast<std::int64_t>(indices.size());
        }
        ASSERT_GT(in_step, 0) << "a step without a sample is refused";
        samples += in_step;
        ++steps;
        if (changes) world_size = static_cast<int>(prng.Between(1, 5));
      }
      ASSERT_THAT(seen, testing::Each(1))
          << images << " images, batch " << batch << ", " << world_size << " ranks";
      if (!changes) ASSERT_EQ(steps, sampler.steps_per_epoch(world_size));
    }
  }
}

TEST(Sampler, TheLastStepOfAnEpochIsUneven) {
  Sampler sampler(/*images=*/70, /*batch=*/10, 1);
  EXPECT_EQ(sampler.steps_per_epoch(4), 2);
  EXPECT_EQ(sampler.Batch(40, 2).size(), 10u);
  EXPECT_EQ(sampler.Batch(40, 3).size(), 0u);
  EXPECT_EQ(sampler.Batch(70, 3).size(), 10u);
}

TEST(Sampler, OrderDependsOnSeedAndEpochAlone) {
  const auto first = [](std::uint64_t seed, std::int64_t samples) {
    Sampler sampler(1000, 10, seed);
    const auto batch = sampler.Batch(samples, 0);
    return std::vector<std::int64_t>(batch.begin(), batch.end());
  };
  EXPECT_EQ(first(1, 0), first(1, 0));
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1, 1000));
  Sampler sampler(1000, 10, 1);
  sampler.Batch(2500, 0);
  EXPECT_THAT(sampler.Batch(0, 0), testing::ElementsAreArray(first(1, 0)));
}

}  // namespace
}  // namespace lockstep
