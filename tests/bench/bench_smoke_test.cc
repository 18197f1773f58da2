// The whole bench with tiny sizes: what it measures comes out. Nothing here
// depends on how long anything took.
#include <string>

#include "absl/time/time.h"
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
                                          "broadcast", "agree"));
  EXPECT_TRUE(report["ratios"].contains("bandwidth_probe"));
  EXPECT_TRUE(report["ratios"].contains("agree_share"));
  ASSERT_EQ(report["memory"].size(), 2);
  EXPECT_GT(report["memory"][0]["peak_bytes"], report["memory"][0]["base_bytes"]);
}

INSTANTIATE_TEST_SUITE_P(Transports, BenchSmoke, testing::Values("shm", "gloo"));

TEST(BenchProgram, RefusesWhatItDoesNotKnow) {
  const RunResult result = RunBench({"sprint"});
  EXPECT_EQ(result.exit.code, 2);
  EXPECT_THAT(result.output, HasSubstr("sprint"));
}

}  // namespace
}  // namespace lockstep
