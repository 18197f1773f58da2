#include "worker/optim/gradient_scale.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(ScaleOf, AveragesOverSamplesAlone) {
  const GradientScale scale =
      ScaleOf(/*squared_norm=*/64, /*samples=*/4, /*loss_scale=*/1, /*max_norm=*/0);
  EXPECT_EQ(scale.factor, 0.25f);
  EXPECT_EQ(scale.norm, 2);
  // The same bits as without any clipping, whatever the number of samples.
  for (int samples = 1; samples < 1000; ++samples) {
    EXPECT_EQ(ScaleOf(1, samples, 1, 0).factor, static_cast<float>(1.0 / samples));
    EXPECT_EQ(ScaleOf(1, samples, 1, 2).factor, static_cast<float>(1.0 / samples));
  }
}

TEST(ScaleOf, ClipsTheAveragedGradientAsTorchDoes) {
  const GradientScale scale = ScaleOf(64, 4, 1, 0.5);
  EXPECT_EQ(scale.norm, 2);
  EXPECT_EQ(scale.factor, static_cast<float>(0.25 * (0.5 / (2 + 1e-6))));
  // Just below its norm a gradient is clipped already: the epsilon stands beside the norm.
  EXPECT_LT(ScaleOf(64, 4, 1, 2).factor, 0.25f);
  EXPECT_EQ(ScaleOf(64, 4, 1, 2.001).factor, 0.25f);
}

TEST(ScaleOf, FreesTheGradientOfTheScaleOfTheLossBeforeItClips) {
  const GradientScale scale = ScaleOf(64.0 * 1024 * 1024, 4, 1024, 0.5);
  EXPECT_EQ(scale.norm, 2);
  EXPECT_EQ(scale.factor, ScaleOf(64, 4, 1, 0.5).factor / 1024);
}

TEST(ScaleOf, LeavesAZeroGradientAlone) {
  EXPECT_EQ(ScaleOf(0, 2, 1, 1).factor, 0.5f);
  EXPECT_EQ(ScaleOf(0, 2, 1, 1).norm, 0);
}

}  // namespace
}  // namespace lockstep
