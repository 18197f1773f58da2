#include "tests/bench/cost_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

CaseResult Case(const std::string& name, int ranks, std::int64_t parameters, double ms) {
  return {.name = name,
          .ranks = ranks,
          .bytes = parameters * 4,
          .parameters = parameters,
          .repetitions = {{.ms = ms}}};
}

const std::vector<CaseResult>& Results() {
  static const auto* results = new std::vector<CaseResult>{
      Case("step", 1, 1000000, 4), Case("bandwidth_probe", 1, 1000000, 2),
      Case("step", 2, 1000000, 3), Case("bandwidth_probe", 2, 1000000, 1.5),
      Case("step", 1, 4000000, 16), Case("bandwidth_probe", 1, 4000000, 8),
      Case("step", 2, 4000000, 12)};
  return *results;
}

TEST(CostReport, AResultTellsParametersAndRanks) {
  const nlohmann::json report = MakeCostReport({.transport = "shm"}, Results(), {"the probe"});
  EXPECT_EQ(report["bench"], "cost");
  EXPECT_EQ(report["left_out"], nlohmann::json({"the probe"}));
  const nlohmann::json& last = report["results"][6];
  EXPECT_EQ(last["name"], "step");
  EXPECT_EQ(last["ranks"], 2);
  EXPECT_EQ(last["parameters"], 4000000);
  EXPECT_EQ(last["bytes"], 16000000);
  EXPECT_EQ(last["median_ms"], 12);
}

TEST(CostReport, TheTableHasARowForEachSizeAndTheProbeBesideTheStep) {
  const std::string text = CostText(MakeCostReport({}, Results(), {"the probe of something"}));
  EXPECT_THAT(text, HasSubstr("  parameters     1 rank     probe    2 ranks     probe\n"
                              "     1000000       4.00      2.00       3.00      1.50\n"
                              "     4000000      16.00      8.00      12.00         -\n"));
  EXPECT_THAT(text, HasSubstr("Left out: the probe of something\n"));
}

}  // namespace
}  // namespace lockstep
