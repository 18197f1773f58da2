// A few workers, the real coordinator: every figure comes out. Nothing here depends on how long
// anything took.
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/process/child_process.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RunResult RunBench(const std::vector<std::string>& arguments) {
  const auto program = FindRunfile("lockstep/tests/bench/coordinator/coordinator");
  EXPECT_THAT(program, IsOk());
  const auto result = RunProgram({.program = program.value_or(""), .arguments = arguments},
                                 absl::Minutes(3));
  EXPECT_THAT(result, IsOk());
  return result.value_or(RunResult{.exit = {.code = -1}});
}

TEST(CapacityBench, MeasuresWorkersWithTlsAndWithout) {
  const std::string file = testing::TempDir() + "/capacity.json";
  const RunResult result =
      RunBench({"--workers", "20", "--workers-per-connection", "6", "--seconds", "1", "--json",
                file});
  ASSERT_TRUE(result.exit.ok()) << result.output;
  const auto text = ReadFile(file);
  ASSERT_THAT(text, IsOk());
  const auto report = nlohmann::json::parse(*text, nullptr, false);
  ASSERT_EQ(report.size(), 2u) << *text;
  for (const bool tls : {false, true}) {
    const auto& measured = report[tls ? 1 : 0];
    EXPECT_EQ(measured["workers"], 20);
    EXPECT_EQ(measured["tls"], tls);
    for (const char* figure : {"joins_per_second", "epoch_seconds", "heartbeats_per_second",
                               "heartbeat_p99_ms", "policy_fanout_seconds", "restart_seconds"}) {
      EXPECT_GT(measured[figure], 0) << figure << " of " << measured;
    }
    EXPECT_TRUE(measured["bytes_per_worker"].is_number_integer()) << measured;
    EXPECT_EQ(measured.size(), 9u) << measured;
  }
}

TEST(CapacityBench, SaysWhatItCannotDo) {
  const RunResult unknown = RunBench({"--sprint"});
  EXPECT_EQ(unknown.exit.code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("sprint"));
  const RunResult unwritable =
      RunBench({"--workers", "1", "--tls", "off", "--seconds", "1", "--json", "/proc/none/report"});
  EXPECT_EQ(unwritable.exit.code, 1);
  EXPECT_THAT(unwritable.output, HasSubstr("/proc/none/report"));
}

}  // namespace
}  // namespace lockstep
