#include "worker/trainer/training.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/mnist.h"
#include "worker/trainer/monitor.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string BigEndian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// Images of digit k: noise, and a bright bar in rows 2k + 3 and 2k + 4.
void WriteImages(const std::string& prefix, std::uint32_t count, std::uint64_t seed) {
  Prng prng(seed);
  std::string pixels;
  std::string labels;
  for (std::uint32_t i = 0; i < count; ++i) {
    const int digit = static_cast<int>(prng.Below(kDigits));
    labels.push_back(static_cast<char>(digit));
    for (int row = 0; row < kImageSide; ++row) {
      const bool bar = row / 2 == digit + 1;
      for (int column = 0; column < kImageSide; ++column) {
        pixels.push_back(static_cast<char>(bar ? 200 : prng.Below(60)));
      }
    }
  }
  std::ofstream(prefix + "-images-idx3-ubyte", std::ios::binary)
      << BigEndian(0x803) << BigEndian(count) << BigEndian(kImageSide) << BigEndian(kImageSide)
      << pixels;
  std::ofstream(prefix + "-labels-idx1-ubyte", std::ios::binary)
      << BigEndian(0x801) << BigEndian(count) << labels;
}

class TrainAlone : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    WriteImages(Folder() + "/train", 300, 1);
    WriteImages(Folder() + "/t10k", 100, 2);
  }

  static std::string Folder() { return std::getenv("TEST_TMPDIR"); }
  static TrainingOptions Options() {
    return {.data = Folder(), .epochs = 2, .batch = 20, .report = Folder() + "/report.json"};
  }
  static absl::Status Run(const TrainingOptions& options) {
    StopRequest stop;
    TrainingMonitor monitor;
    return Train(options, &stop, &monitor);
  }
  static json Report() { return json::parse(std::ifstream(Folder() + "/report.json")); }
};

TEST_F(TrainAlone, EachBuiltInModelLearnsAndReports) {
  for (const std::string model : {"conv", "mlp", "resnet"}) {
    TrainingOptions options = Options();
    options.model = model;
    options.evaluate_at = {0, 7};
    options.evaluate_every = 15;
    LOCKSTEP_ASSERT_OK(Run(options));
    const json report = Report();
    EXPECT_EQ(report["steps"], 30);
    EXPECT_EQ(report["images"], 600);
    EXPECT_EQ(report["world_size"], 1);
    std::vector<int> evaluated;
    for (const json& evaluation : report["evaluations"]) evaluated.push_back(evaluation["step"]);
    EXPECT_EQ(evaluated, (std::vector<int>{0, 7, 15, 30}));
    EXPECT_GT(report["evaluations"][3]["accuracy"], 0.9) << model;
    EXPECT_EQ(report["losses"].size(), 4u);  // steps 1, 10, 20, 30
    EXPECT_EQ(report["drift"].size(), 3u);
    EXPECT_EQ(report["buffer_digest"].get<std::string>().size(), 16u);
  }
}

TEST_F(TrainAlone, EqualSeedsGiveEqualParametersAndBuffers) {
  TrainingOptions options = Options();
  LOCKSTEP_ASSERT_OK(Run(options));
  const json first = Report();
  LOCKSTEP_ASSERT_OK(Run(options));
  EXPECT_EQ(Report()["parameter_digest"], first["parameter_digest"]);
  EXPECT_EQ(Report()["buffer_digest"], first["buffer_digest"]);
  options.seed = 2;
  LOCKSTEP_ASSERT_OK(Run(options));
  EXPECT_NE(Report()["parameter_digest"], first["parameter_digest"]);
}

TEST_F(TrainAlone, StepsEndTrainingBeforeTheEpochsDo) {
  TrainingOptions options = Options();
  options.steps = 3;
  LOCKSTEP_ASSERT_OK(Run(options));
  EXPECT_EQ(Report()["steps"], 3);
  EXPECT_EQ(Report()["evaluations"].size(), 1u);
}

TEST_F(TrainAlone, TheMonitorCountsEachStepAndItsPhases) {
  TrainingOptions options = Options();
  options.steps = 3;
  StopRequest stop;
  TrainingMonitor monitor;
  LOCKSTEP_ASSERT_OK(Train(options, &stop, &monitor));
  const StepTimes::Totals totals = monitor.times().totals();
  const auto count = [](const TimeHistogram& times) {
    return std::accumulate(times.counts.begin(), times.counts.end(), std::int64_t{0});
  };
  EXPECT_EQ(count(totals.steps), 3);
  double phases = 0;
  for (const TimeHistogram& phase : totals.phases) phases += phase.seconds;
  EXPECT_NEAR(phases, totals.steps.seconds, 1e-6);
  EXPECT_EQ(count(totals.phases[static_cast<std::size_t>(StepPhase::kForward)]), 3);
  EXPECT_FALSE(monitor.status().has_value());  // it has left
}

TEST_F(TrainAlone, ASignalStopsItBeforeTheNextStep) {
  StopRequest stop;
  TrainingMonitor monitor;
  stop.Set(SIGTERM);
  EXPECT_THAT(Train(Options(), &stop, &monitor),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("after step 0")));
}

TEST_F(TrainAlone, WrongOptionsAreNamed) {
  const auto refused = [](const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions options = Options();
    change(options);
    return std::string(options.Validate().message());
  };
  EXPECT_THAT(refused([](auto& o) { o.data = ""; }), HasSubstr("--data"));
  EXPECT_THAT(refused([](auto& o) { o.batch = 0; }), HasSubstr("--batch is 0"));
  EXPECT_THAT(refused([](auto& o) { o.epochs = 0; }), HasSubstr("--epochs is 0"));
  EXPECT_THAT(refused([](auto& o) { o.steps = -1; }), HasSubstr("--steps is -1"));
  EXPECT_THAT(refused([](auto& o) { o.evaluate_at = {-4}; }), HasSubstr("--evaluate-at is -4"));
  EXPECT_THAT(refused([](auto& o) { o.drift_every = -1; }), HasSubstr("--drift-every is -1"));
}

TEST_F(TrainAlone, AModelThatDoesNotExistIsNamed) {
  TrainingOptions options = Options();
  options.model = "transformer";
  EXPECT_THAT(Run(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no model 'transformer'")));
}

TEST_F(TrainAlone, AFileThatCannotBeWrittenIsNamed) {
  TrainingOptions options = Options();
  options.steps = 1;
  options.report = "/no/such/folder/report.json";
  EXPECT_THAT(Run(options), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder")));
}

}  // namespace
}  // namespace lockstep
