#include "tests/bench/coordinator/capacity_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;

constexpr CapacityResult kResult = {.workers = 1000,
                                    .tls = true,
                                    .welcomed_seconds = 0.5,
                                    .epoch_seconds = 1.25,
                                    .heartbeats_per_second = 4990,
                                    .heartbeat_p99_ms = 3.5,
                                    .policy_fanout_seconds = 0.0625,
                                    .idle_bytes = 1'000'000,
                                    .resident_bytes = 21'000'000,
                                    .restart_seconds = 0.25};

TEST(CapacityReport, JsonHasWhatWasMeasuredOfEachCase) {
  EXPECT_EQ(CapacityJson({kResult}), nlohmann::json::parse(R"([{
    "workers": 1000, "tls": true, "joins_per_second": 2000.0, "epoch_seconds": 1.25,
    "heartbeats_per_second": 4990.0, "heartbeat_p99_ms": 3.5, "policy_fanout_seconds": 0.0625,
    "bytes_per_worker": 20000, "restart_seconds": 0.25}])"));
  EXPECT_EQ(CapacityJson({}), nlohmann::json::array());
}

TEST(CapacityReport, TextHasALineForEachCase) {
  const std::string text = CapacityText({kResult, {.workers = 7, .welcomed_seconds = 1}});
  EXPECT_THAT(text, ContainsRegex("\n +1000 +on \\| +2000 +1.25 .* 20000 "));
  EXPECT_THAT(text, ContainsRegex("\n +7 +off \\|"));
}

}  // namespace
}  // namespace lockstep
