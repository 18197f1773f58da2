#include "worker/core/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Combine, ACheckpointIsSavedOnceTheSlowestRankHasWrittenItsPart) {
  std::vector<ControlWord> words(3);
  for (ControlWord& word : words) word.saved = 40;
  words[1].saved = 20;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Agreement agreement, Combine(words, {"w0", "w1", "w2"}));
  EXPECT_EQ(agreement.saved, 20);
  words[1].saved = 40;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(agreement, Combine(words, {"w0", "w1", "w2"}));
  EXPECT_EQ(agreement.saved, 40);
}

TEST(Combine, TakesTheLeastLogNumberThatEveryRankKnows) {
  const std::vector<ControlWord> words = {
      {.step = 7, .log_number = 5}, {.step = 7, .log_number = 3}, {.step = 7, .log_number = 9}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Agreement agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_EQ(agreement.log_number, LogNumber(3));
}

TEST(Combine, AddsSamplesAndKeepsWeightsByRank) {
  const std::vector<ControlWord> words = {{.samples = 8, .weight = 8},
                                          {.samples = 0, .weight = 0},
                                          {.samples = 3, .weight = 1}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Agreement agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_EQ(agreement.samples, 11);
  EXPECT_EQ(agreement.weights, (std::vector<float>{8, 0, 1}));
}

TEST(Combine, IsFiniteOnlyIfEveryRankIs) {
  std::vector<ControlWord> words(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Agreement agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_TRUE(agreement.finite);
  words[1].not_finite = 7;
  words[2].not_finite = 0;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_FALSE(agreement.finite);
  EXPECT_EQ(agreement.not_finite, (std::vector<NotFinite>{{1, 7}, {2, 0}}));
  // A rank of weight 0 does not count.
  words[1].weight = words[2].weight = 0;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_TRUE(agreement.finite);
  EXPECT_TRUE(agreement.not_finite.empty());
}

TEST(Combine, IsNotFiniteIfTheWeightedSumCouldOverflow) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const auto finite = [](float weight, float a, float b) {
    const std::vector<ControlWord> words = {{.weight = weight, .largest = a},
                                            {.weight = weight, .largest = b}};
    return Combine(words, {"a", "b"})->finite;
  };
  EXPECT_TRUE(finite(1, kMax / 4, kMax / 4));
  EXPECT_TRUE(finite(0.5f, kMax / 2, kMax / 2));
  EXPECT_FALSE(finite(1, kMax / 2, kMax / 4));
  EXPECT_FALSE(finite(-4, kMax / 4, 0));
  EXPECT_FALSE(finite(1, std::numeric_limits<float>::infinity(), 0));
  EXPECT_FALSE(finite(1, std::numeric_limits<float>::quiet_NaN(), 0));
  EXPECT_FALSE(finite(std::numeric_limits<float>::quiet_NaN(), 1, 0));
}

TEST(Combine, NamesTheRanksThatAreAtDifferentSteps) {
  const std::vector<ControlWord> words = {{.step = 7}, {.step = 8}};
  EXPECT_THAT(Combine(words, {"w0", "w1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("step 7 on w0 (rank 0)"),
                             HasSubstr("step 8 on w1 (rank 1)"))));
}

TEST(Combine, TakesTheSettingsThatAllRanksHave) {
  const std::vector<ControlWord> words(
      3, {.settings = {.learning_rate = 0.1, .max_grad_norm = 0.5, .loss_scale = 8}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Agreement agreement, Combine(words, {"a", "b", "c"}));
  EXPECT_EQ(agreement.settings.learning_rate, 0.1);
  EXPECT_EQ(agreement.settings.max_grad_norm, 0.5);
  EXPECT_EQ(agreement.settings.loss_scale, 8);
}

TEST(Combine, NamesTheSettingThatRanksDisagreeOn) {
  const std::pair<double UpdateSettings::*, std::string> cases[] = {
      {&UpdateSettings::learning_rate, "the learning rate"},
      {&UpdateSettings::max_grad_norm, "max_grad_norm"},
      {&UpdateSettings::loss_scale, "loss_scale"},
  };
  for (const auto& [setting, name] : cases) {
    std::vector<ControlWord> words(2, {.step = 3});
    words[0].settings.*setting = 0.1;
    words[1].settings.*setting = std::nextafter(0.1, 1);
    EXPECT_THAT(Combine(words, {"w0", "w1"}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(name + " at step 3: 0.1 on w0 (rank 0), "
                                          "0.10000000000000002 on w1 (rank 1)")));
  }
}

TEST(Combine, RefusesNegativeSamplesAndSamplesThatOverflow) {
  EXPECT_THAT(Combine(std::vector<ControlWord>{{.samples = 1}, {.samples = -2}}, {"w0", "w1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("w1 (rank 1)")));
  EXPECT_THAT(Combine(std::vector<ControlWord>{{.samples = INT64_MAX}, {.samples = 1}},
                      {"w0", "w1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("64 bits")));
}

TEST(Combine, DoesNotDependOnHowRanksAreNumberedExceptForTheNormsRounding) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Prng prng(seed);
    std::vector<ControlWord> words(1 + prng.Below(6));
    for (ControlWord& word : words) {
      word = {.step = 4,
              .log_number = static_cast<std::int64_t>(prng.Below(10)),
              .samples = static_cast<std::int64_t>(prng.Below(5)),
              .largest = prng.Below(4) != 0 ? 1.0f : 3e38f};
    }
    const std::vector<std::string> members(words.size(), "w");
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Agreement forward, Combine(words, members));
    std::reverse(words.begin(), words.end());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Agreement backward, Combine(words, members));
    EXPECT_EQ(forward.log_number, backward.log_number) << seed;
    EXPECT_EQ(forward.samples, backward.samples) << seed;
    EXPECT_EQ(forward.finite, backward.finite) << seed;
  }
}

}  // namespace
}  // namespace lockstep
