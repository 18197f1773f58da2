#include "tests/bench/report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CaseResult Case(const std::string& name, const std::vector<double>& times) {
  CaseResult result = {.name = name, .ranks = 4, .bytes = 64};
  for (const double ms : times) {
    result.repetitions.push_back({.ms = ms, .parts_ms = {{"1 half", ms / 2}}});
  }
  return result;
}

TEST(Report, AResultHoldsWhatWasMeasured) {
  const nlohmann::json report = MakeReport({.ranks = 4}, {Case("step", {3, 1, 2})}, {});
  const nlohmann::json& step = report["results"][0];
  EXPECT_EQ(step["name"], "step");
  EXPECT_EQ(step["ranks"], 4);
  EXPECT_EQ(step["median_ms"], 2);
  EXPECT_EQ(step["best_ms"], 1);
  EXPECT_EQ(step["p99_ms"], 3);
  EXPECT_EQ(step["bytes"], 64);
  EXPECT_EQ(step["parts_median_ms"]["1 half"], 1);
}

TEST(Report, ARatioIsAPeersTimeOverOurs) {
  const nlohmann::json report =
      MakeReport({}, {Case("step", {10, 20, 10}), Case("zero_fused", {30, 30, 30}),
                      Case("bandwidth_probe", {8, 8, 8})}, {});
  EXPECT_EQ(report["ratios"]["zero_fused"], 3);
  EXPECT_EQ(report["ratios"]["bandwidth_probe"], 0.8);
  EXPECT_EQ(report["ratios_of_best"]["zero_fused"], 3);
  EXPECT_EQ(report["ratio_quartiles"]["zero_fused"], nlohmann::json({1.5, 3}));
}

TEST(Report, RatiosOfWhatWasNotMeasuredAreLeftOut) {
  const nlohmann::json report = MakeReport({}, {Case("zero_fused", {30}), Case("agree", {0.02})}, {});
  EXPECT_FALSE(report["ratios"].contains("zero_fused"));
  EXPECT_EQ(report["ratios"]["agree_share"], 0.001);
}

TEST(Report, TheTextShowsCasesPartsAndRatios) {
  const std::string text =
      ReportText(MakeReport({}, {Case("step", {10}), Case("fairscale", {25})}, {}));
  EXPECT_THAT(text, HasSubstr("1 half"));
  EXPECT_THAT(text, HasSubstr("fairscale             2.500"));
  EXPECT_THAT(text, Not(HasSubstr("Memory")));
}

TEST(Report, ImagesPerSecondAreThoseOfTheMedian) {
  CaseResult ours = Case("train", {50, 40, 20});
  ours.images = 64;
  CaseResult peer = Case("train_ddp", {80, 80, 80});
  peer.images = 64;
  const nlohmann::json report = MakeReport({}, {ours, peer}, {});
  EXPECT_EQ(report["results"][0]["images_per_second"], 1600);
  EXPECT_EQ(report["results"][1]["images_per_second"], 800);
  EXPECT_EQ(report["ratios"]["train_ddp"], 2);
  EXPECT_FALSE(MakeReport({}, {Case("step", {1})}, {})["results"][0].contains("images_per_second"));
}

TEST(Report, WhatRanksTrainedOnAndHowFarIsTold) {
  const RankAccounts accounts = {
      .training = {{.system = "peers", .rank = 1, .parameters = 99, .buffers = 3, .losses = {2.5, 0.5}}},
      .data = "MNIST"};
  const nlohmann::json report = MakeReport({}, {Case("train", {40})}, accounts);
  EXPECT_EQ(report["data"], "MNIST");
  EXPECT_EQ(report["training"][0]["first_loss"], 2.5);
  EXPECT_EQ(report["training"][0]["last_loss"], 0.5);
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("Training on MNIST"));
  EXPECT_THAT(text, HasSubstr("peers 1                     99        3      2      2.5000     0.5000"));
}

TEST(Report, AnUnknownAmountOfMemoryIsNoNumber) {
  const nlohmann::json held = {{"peak_bytes", 3 << 20}, {"bound_bytes", 4 << 20},
                               {"mapped_peer_gradient_bytes", 1 << 20},
                               {"proportional_bytes", -1}, {"peak_while_joining_bytes", 5 << 20},
                               {"sent_bytes_per_step", 7 << 20}};
  const std::string text = ReportText(MakeReport({}, {Case("step", {10})}, {.memory = {held}}));
  EXPECT_THAT(text, HasSubstr("0            3        4           1          2            ?              5"));
  EXPECT_THAT(text, HasSubstr("Sent over the network by each rank in the last step, MiB: 7"));
}

}  // namespace
}  // namespace lockstep
