#include "worker/trainer/step_times.h"

#include <numeric>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

MonoTime At(int milliseconds) { return MonoTime() + absl::Milliseconds(milliseconds); }

std::int64_t CountOf(const TimeHistogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::int64_t{0});
}
const TimeHistogram& Of(const StepTimes::Totals& totals, StepPhase phase) {
  return totals.phases[static_cast<std::size_t>(phase)];
}

TEST(StepTimes, APhaseLastsUntilTheNextOneIsReached) {
  StepTimes times;
  times.Reach(StepPhase::kForward, At(1000));
  times.Reach(StepPhase::kCollected, At(1030));
  times.Reach(StepPhase::kAgreed, At(1032));
  times.EndStep(At(1040));
  const StepTimes::Totals totals = times.totals();
  EXPECT_DOUBLE_EQ(Of(totals, StepPhase::kForward).seconds, 0.030);
  EXPECT_DOUBLE_EQ(Of(totals, StepPhase::kCollected).seconds, 0.002);
  EXPECT_DOUBLE_EQ(Of(totals, StepPhase::kAgreed).seconds, 0.008);
  EXPECT_DOUBLE_EQ(totals.steps.seconds, 0.040);
  EXPECT_EQ(CountOf(totals.steps), 1);
  EXPECT_EQ(CountOf(Of(totals, StepPhase::kAgreed)), 1);
  // It was not passed.
  EXPECT_EQ(CountOf(Of(totals, StepPhase::kReducing)), 0);
}

TEST(StepTimes, APhaseThatIsReachedTwiceInAStepCountsOnceWithTheSum) {
  StepTimes times;
  times.Reach(StepPhase::kForward, At(0));
  for (int i = 0; i < 3; ++i) {
    times.Reach(StepPhase::kUpdating, At(10 + 10 * i));
    times.Reach(StepPhase::kSpreading, At(13 + 10 * i));
  }
  times.EndStep(At(40));
  const StepTimes::Totals totals = times.totals();
  EXPECT_DOUBLE_EQ(Of(totals, StepPhase::kUpdating).seconds, 0.009);
  EXPECT_DOUBLE_EQ(Of(totals, StepPhase::kSpreading).seconds, 0.021);
  EXPECT_EQ(CountOf(Of(totals, StepPhase::kUpdating)), 1);
}

TEST(StepTimes, AStepThatIsNotTakenCountsForNothing) {
  StepTimes times;
  times.Reach(StepPhase::kForward, At(0));
  times.Reach(StepPhase::kCollected, At(10));
  times.Reach(StepPhase::kForward, At(5000));
  times.EndStep(At(5002));
  const StepTimes::Totals totals = times.totals();
  EXPECT_DOUBLE_EQ(totals.steps.seconds, 0.002);
  EXPECT_EQ(CountOf(Of(totals, StepPhase::kCollected)), 0);
}

TEST(StepTimes, TimeBetweenStepsIsOfNone) {
  StepTimes times;
  times.EndStep(At(5));  // none is under way
  times.Reach(StepPhase::kForward, At(10));
  times.EndStep(At(20));
  times.Reach(StepPhase::kApplying, At(30));
  times.EndStep(At(40));
  EXPECT_DOUBLE_EQ(times.totals().steps.seconds, 0.010);
}

TEST(StepTimes, BucketsHoldTheirUpperBound) {
  TimeHistogram histogram;
  histogram.Add(absl::Seconds(1));
  histogram.Add(absl::Milliseconds(1001));
  histogram.Add(absl::Minutes(5));
  histogram.Add(absl::ZeroDuration());
  EXPECT_EQ(histogram.counts.front(), 1);
  EXPECT_EQ(histogram.counts[11], 1);  // up to 1 s
  EXPECT_EQ(histogram.counts[12], 1);  // up to 2.5 s
  EXPECT_EQ(histogram.counts.back(), 1);
}

}  // namespace
}  // namespace lockstep
