#include "tools/demo/run_report.h"

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using nlohmann::json;

// A worker that drifted until step 5 and was synchronised after it.
json Worker(int rank) {
  return {{"rank", rank},
          {"worker", "worker-" + std::to_string(rank)},
          {"world_size", 2},
          {"transport", "shm"},
          {"steps", 10},
          {"images_per_second", 100.0},
          {"evaluations",
           {{{"step", 5}, {"accuracy", 0.9 + 0.01 * rank}, {"loss", 0.3 + 0.01 * rank}},
            {{"step", 10}, {"accuracy", 0.99}, {"loss", 0.03}}}},
          {"losses", {{{"step", 1}, {"loss", 2.0 + rank}}}},
          {"drift",
           {{{"step", 4}, {"largest", 0.5}, {"buffer", "bn.running_var"}},
            {{"step", 8}, {"largest", 0.0}, {"buffer", ""}}}},
          {"switches", {{{"revision", 2}, {"log_number", 1}, {"effective_step", 5}}}},
          {"buffer_digest", "b"},
          {"parameter_digest", "p"},
          {"optimizer_bytes", 1000},
          {"synced_bytes", 70}};
}

TEST(MergeReports, OrdersByRankAndAddsUp) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const json report, MergeReports({Worker(1), Worker(0)}));
  EXPECT_EQ(report.at("world_size"), 2);
  EXPECT_EQ(report.at("images_per_second"), 200.0);
  EXPECT_EQ(report.at("test_accuracy_before"), json({0.9, 0.91}));
  EXPECT_EQ(report.at("test_accuracy"), json({0.99, 0.99}));
  EXPECT_EQ(report.at("loss"), json::parse(R"([{"step": 1, "loss": 2.5}])"));
  EXPECT_EQ(report.at("switches"), json::parse(R"([{"revision": 2, "effective_step": [5, 5]}])"));
  EXPECT_THAT(UnmetClaims(report, 0.98), IsEmpty());
  EXPECT_THAT(SummaryTable(report), HasSubstr("before step 5"));
}

TEST(MergeReports, RefusesMissingRanksAndFields) {
  EXPECT_THAT(MergeReports({}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MergeReports({Worker(0)}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(MergeReports({Worker(1), Worker(1)}), StatusIs(absl::StatusCode::kInvalidArgument));
  json lacking = Worker(1);
  lacking.erase("drift");
  lacking.erase("switches");
  EXPECT_THAT(MergeReports({Worker(0), lacking}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(UnmetClaims, NamesEachClaimThatDoesNotHold) {
  const auto unmet_with = [](const char* field, const json& value) {
    json worker = Worker(1);
    worker[field] = value;
    return UnmetClaims(*MergeReports({Worker(0), worker}), 0.98);
  };
  EXPECT_THAT(unmet_with("buffer_digest", "x"), ElementsAre(HasSubstr("buffers are bit-equal")));
  EXPECT_THAT(unmet_with("parameter_digest", "x"),
              ElementsAre(HasSubstr("parameters are bit-equal")));
  EXPECT_THAT(unmet_with("switches", json::parse(R"([{"revision": 2, "effective_step": 6}])")),
              ElementsAre(HasSubstr("at one step on all ranks")));
  EXPECT_THAT(unmet_with("switches", json::array()),
              ElementsAre(HasSubstr("at one step on all ranks")));
  EXPECT_THAT(unmet_with("evaluations", Worker(0).at("evaluations")),
              ElementsAre(HasSubstr("ranks differ")));
  EXPECT_THAT(UnmetClaims(*MergeReports({Worker(0), Worker(1)}), 0.995),
              ElementsAre(HasSubstr("rank 0"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace lockstep
