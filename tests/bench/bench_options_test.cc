#include "tests/bench/bench_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchOptions Parsed(const std::vector<std::string>& arguments) {
  const auto parsed = ParseBenchOptions(arguments);
  const auto* options = std::get_if<BenchOptions>(&parsed);
  EXPECT_NE(options, nullptr) << std::get<EarlyExit>(parsed).text;
  return options == nullptr ? BenchOptions() : *options;
}

EarlyExit Refused(const std::vector<std::string>& arguments) {
  const auto parsed = ParseBenchOptions(arguments);
  const auto* exit = std::get_if<EarlyExit>(&parsed);
  EXPECT_NE(exit, nullptr);
  return exit == nullptr ? EarlyExit() : *exit;
}

TEST(BenchOptions, TheBenchIsAllThatIsNeeded) {
  EXPECT_EQ(Parsed({"step"}), (BenchOptions{.benches = {"step"}}));
}

TEST(BenchOptions, EveryOptionIsTaken) {
  EXPECT_EQ(Parsed({"buffers", "--ranks", "4", "--transport", "gloo", "--peers", "--json", "out.json",
                    "--repeat", "7", "--tiny"}),
            (BenchOptions{.benches = {"buffers"},
                          .ranks = 4,
                          .transport = "gloo",
                          .peers = true,
                          .json = "out.json",
                          .repeat = 7,
                          .tiny = true}));
}

TEST(BenchOptions, SeveralBenchesRunOnceEachInAFixedOrder) {
  EXPECT_THAT(Parsed({"agree", "step", "agree"}).benches, ElementsAre("step", "agree"));
  EXPECT_THAT(Parsed({"all"}).benches, ElementsAre("step", "buffers", "broadcast", "agree", "train"));
}

TEST(BenchOptions, WhatIsNotAllowedIsRefusedByName) {
  EXPECT_EQ(Refused({}).code, 2);
  EXPECT_THAT(Refused({}).text, HasSubstr("BENCH"));
  EXPECT_THAT(Refused({"sprint"}).text, HasSubstr("sprint"));
  EXPECT_THAT(Refused({"step", "--ranks", "1"}).text, HasSubstr("--ranks"));
  EXPECT_THAT(Refused({"step", "--transport", "nccl"}).text, HasSubstr("nccl"));
  EXPECT_THAT(Refused({"step", "--repeat", "0"}).text, HasSubstr("--repeat"));
  EXPECT_EQ(Refused({"step", "--repeat", "0"}).code, 2);
}

TEST(BenchOptions, CostGoesByItselfWithFewRepetitions) {
  EXPECT_EQ(Parsed({"cost"}).repeat, 7);
  EXPECT_EQ(Parsed({"cost", "--repeat", "30"}).repeat, 30);
  EXPECT_TRUE(Parsed({"cost", "--tiny", "--json", "out.json"}).is_cost());
  EXPECT_FALSE(Parsed({"step"}).is_cost());
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"step"}, {"all"}, {"--ranks", "2"}, {"--peers"}}) {
    std::vector<std::string> arguments = {"cost"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Refused(arguments).code, 2) << more.front();
    EXPECT_THAT(Refused(arguments).text, HasSubstr("cost goes without"));
  }
}

TEST(BenchOptions, HelpEndsWithoutAnError) {
  const EarlyExit help = Refused({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.text, HasSubstr("Exit codes"));
}

TEST(BenchOptions, TinySizesKeepTheShape) {
  EXPECT_EQ(SizesOf({}).step_elements(), 20971520);
  EXPECT_LT(SizesOf({.tiny = true}).step_elements(), 10000);
}

}  // namespace
}  // namespace lockstep
