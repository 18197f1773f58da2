// The whole bench with tiny sizes: what it measures comes out. Nothing here
// depends on how long anything took.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RunResult RunBench(const std::vector<std::string>& arguments) {
  const auto program = FindRunfile("lockstep/tests/bench/bench");
  EXPECT_THAT(program, IsOk());
  const auto result = RunProgram({.program = program.value_or(""), .arguments = arguments},
                                 absl::Minutes(3));
  EXPECT_THAT(result, IsOk());
  return result.value_or(RunResult{.exit = {.code = -1}});
}

class BenchSmoke : public testing::TestWithParam<std::string> {};

TEST_P(BenchSmoke, EveryBenchMeasuresItsCases) {
  const std::string file = testing::TempDir() + "/report-" + GetParam() + ".json";
  const RunResult result = RunBench(
      {"all", "--tiny", "--repeat", "2", "--transport", GetParam(), "--json", file});
  ASSERT_TRUE(result.exit.ok()) << result.output;
  const auto text = ReadFile(file);
  ASSERT_THAT(text, IsOk());
  const auto report = nlohmann::json::parse(*text, nullptr, false);
  std::vector<std::string> names;
  for (const auto& measured : report["results"]) {
    names.push_back(measured["name"]);
    EXPECT_EQ(measured["repetitions"], 2) << measured;
    EXPECT_GT(measured["best_ms"], 0) << measured;
    EXPECT_GE(measured["p99_ms"], measured["best_ms"]) << measured;
    EXPECT_GT(measured["bytes"], 0) << measured;
  }
  EXPECT_THAT(names, testing::ElementsAre("step", "bandwidth_probe", "buffers_hot", "buffers_cold",
                                          "broadcast", "agree", "train"));
  EXPECT_TRUE(report["ratios"].contains("bandwidth_probe"));
  EXPECT_TRUE(report["ratios"].contains("agree_share"));
  ASSERT_EQ(report["memory"].size(), 2);
  EXPECT_GT(report["memory"][0]["peak_bytes"], report["memory"][0]["base_bytes"]);
  EXPECT_GT(report["results"].back()["images_per_second"], 0);
  EXPECT_EQ(report["data"], "random images in MNIST's format");
  ASSERT_EQ(report["training"].size(), 2);
  EXPECT_EQ(report["training"][1]["steps"], 10);  // two of each of 3 + 2 repetitions
}

INSTANTIATE_TEST_SUITE_P(Transports, BenchSmoke, testing::Values("shm", "gloo"));

TEST(BenchProgram, CostIsMeasuredFromOneRankOn) {
  const std::string file = testing::TempDir() + "/report-cost.json";
  const RunResult result = RunBench({"cost", "--tiny", "--repeat", "2", "--json", file});
  ASSERT_TRUE(result.exit.ok()) << result.output;
  const auto text = ReadFile(file);
  ASSERT_THAT(text, IsOk());
  const auto report = nlohmann::json::parse(*text, nullptr, false);
  std::vector<std::string> measured;
  for (const auto& of : report["results"]) {
    measured.push_back(absl::StrCat(of["name"].get<std::string>(), " ", of["parameters"].get<int>(),
                                    " ", of["ranks"].get<int>()));
    EXPECT_GT(of["median_ms"], 0) << of;
  }
  EXPECT_THAT(measured, testing::ElementsAre(
                            "step 256 1", "bandwidth_probe 256 1", "step 256 2",
                            "bandwidth_probe 256 2", "step 1024 1", "bandwidth_probe 1024 1",
                            "step 1024 2", "bandwidth_probe 1024 2"));
  EXPECT_EQ(report["left_out"].size(), 0);
}

TEST(BenchProgram, RefusesWhatItDoesNotKnow) {
  const RunResult result = RunBench({"sprint"});
  EXPECT_EQ(result.exit.code, 2);
  EXPECT_THAT(result.output, HasSubstr("sprint"));
}

}  // namespace
}  // namespace lockstep
