#include "tests/bench/statistics.h"

#include <cstddef>
#include <vector>

#include "common/base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Statistics, BestMedianAndP99DoNotDependOnOrder) {
  const Summary summary = Summarize(std::vector<double>{5, 1, 4, 2, 3});
  EXPECT_EQ(summary.best, 1);
  EXPECT_EQ(summary.median, 3);
  EXPECT_EQ(summary.p99, 5);
}

TEST(Statistics, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Summarize(std::vector<double>{4, 1, 2, 10}).median, 3);
}

TEST(Statistics, P99OfTwoHundredLeavesTheTwoSlowestOut) {
  std::vector<double> values;
  for (int i = 200; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Summarize(values).p99, 198);
}

TEST(Statistics, NothingMeasuredIsZero) {
  EXPECT_EQ(Summarize({}).median, 0);
  EXPECT_EQ(Quantile({}, 0.5), 0);
}

TEST(Statistics, AQuantileIsTheSmallestValueThatEnoughDoNotExceed) {
  Prng prng(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> values(1 + prng.Below(50));
    for (double& value : values) value = static_cast<double>(prng.Below(20));
    const double share = static_cast<double>(1 + prng.Below(100)) / 100;
    const auto covered = [&](double limit) {
      std::size_t count = 0;
      for (const double value : values) count += value <= limit ? 1 : 0;
      return static_cast<double>(count) >= share * static_cast<double>(values.size()) - 1e-9;
    };
    double naive = 1e9;
    for (const double value : values) {
      if (covered(value) && value < naive) naive = value;
    }
    EXPECT_EQ(Quantile(values, share), naive) << round;
  }
}

TEST(Statistics, RatiosPairTheSameRepetitions) {
  EXPECT_THAT(PairedRatios(std::vector<double>{2, 9, 4}, std::vector<double>{1, 3}),
              ElementsAre(DoubleEq(2), DoubleEq(3)));
  EXPECT_THAT(PairedRatios(std::vector<double>{2}, std::vector<double>{0}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
