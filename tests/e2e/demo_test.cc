// The demo as a user runs it.
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/e2e_cluster.h"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using nlohmann::json;

struct DemoResult {
  RunResult run;
  json report;
  std::string folder;
};

DemoResult RunDemo(std::vector<std::string> flags) {
  DemoResult result;
  result.folder = MakeFolder();
  flags.insert(flags.end(), {"--out", result.folder});
  const absl::StatusOr<std::string> program = FindRunfile("lockstep/tools/demo/demo");
  EXPECT_THAT(program, IsOk());
  absl::StatusOr<RunResult> run =
      RunProgram({.program = *program, .arguments = flags}, absl::Minutes(12));
  EXPECT_THAT(run, IsOk());
  if (run.ok()) result.run = *std::move(run);
  EXPECT_TRUE(result.run.exit.ok()) << result.run.exit.ToString() << "\n" << result.run.output;
  const absl::StatusOr<std::string> text = ReadFile(result.folder + "/report.json");
  EXPECT_THAT(text, IsOk());
  result.report = json::parse(text.value_or("null"));
  return result;
}

void ExpectAllEqual(const json& values, std::size_t count) {
  ASSERT_EQ(values.size(), count);
  for (const json& value : values) EXPECT_EQ(value, values.front());
}

void ExpectSwitchedTogether(const json& report, int workers, std::int64_t steps) {
  EXPECT_EQ(report.at("world_size"), workers);
  EXPECT_EQ(report.at("steps"), steps);
  ASSERT_EQ(report.at("switches").size(), 1);
  const json& change = report.at("switches").front();
  EXPECT_EQ(change.at("revision"), 2);
  ExpectAllEqual(change.at("effective_step"), workers);
  const auto step = change.at("effective_step").front().get<std::int64_t>();
  EXPECT_GE(step, steps / 2);
  EXPECT_LT(step, steps);
  ExpectAllEqual(report.at("buffer_digest"), workers);
  ExpectAllEqual(report.at("parameter_digest"), workers);
  ExpectAllEqual(report.at("test_accuracy"), workers);
  for (const json& point : report.at("buffer_drift")) {
    if (point.at("step").get<std::int64_t>() <= step) {
      EXPECT_GT(point.at("largest").get<double>(), 0) << point;
    } else {
      EXPECT_EQ(point.at("largest").get<double>(), 0) << point;
    }
  }
}

TEST(Demo, TrainsTo98PercentAndSwitchesAllRanksAtOneStep) {
  const DemoResult result = RunDemo({});
  ExpectSwitchedTogether(result.report, 2, 469);
  for (const json& accuracy : result.report.at("test_accuracy")) {
    EXPECT_GE(accuracy.get<double>(), 0.98);
  }
  EXPECT_NE(result.report.at("test_loss_before")[0], result.report.at("test_loss_before")[1]);
  EXPECT_THAT(result.run.output, HasSubstr("images/s"));
  EXPECT_THAT(result.run.output, HasSubstr("before step"));

  const absl::StatusOr<std::string> page = ReadFile(result.folder + "/report.html");
  LOCKSTEP_ASSERT_OK(page);
  EXPECT_THAT(*page, HasSubstr("uPlot"));
  EXPECT_THAT(*page, HasSubstr("\"effective_step\""));
  EXPECT_EQ(page->find("src=\"http"), std::string::npos) << "the page needs a network";
}

TEST(Demo, RunsOverGlooToo) {
  const DemoResult result =
      RunDemo({"--transport", "gloo", "--steps", "40", "--least-accuracy", "0"});
  EXPECT_EQ(result.report.at("transport"), "gloo");
  ExpectSwitchedTogether(result.report, 2, 40);
}

TEST(Demo, ShardsOptimizerStateOverFourWorkers) {
  const DemoResult one = RunDemo({"--workers", "1", "--steps", "10", "--least-accuracy", "0"});
  const DemoResult four = RunDemo({"--workers", "4", "--steps", "40", "--least-accuracy", "0"});
  ExpectSwitchedTogether(four.report, 4, 40);
  const auto whole = one.report.at("optimizer_bytes").front().get<std::int64_t>();
  // Two floats of state for each of 16 elements that a shard's end is rounded by.
  constexpr std::int64_t kAlignment = 2 * 4 * 16;
  for (const json& bytes : four.report.at("optimizer_bytes")) {
    EXPECT_NEAR(bytes.get<double>(), static_cast<double>(whole) / 4, kAlignment);
  }
}

}  // namespace
}  // namespace lockstep
