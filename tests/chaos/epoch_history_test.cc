#include "tests/chaos/epoch_history.h"

#include <memory>
#include <string>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::unique_ptr<SerialTraining> Serial() {
  auto serial = SerialTraining::Create(
      {"--data", FindMnist().value_or(""), "--model", "conv", "--batch", "4"});
  EXPECT_THAT(serial, IsOk());
  return *std::move(serial);
}

// Two ranks took steps 1 and 2, then one took step 3.
struct TwoEpochs {
  json first, second;  // of rank 0: the epochs
  std::string digest;  // at the end

  TwoEpochs() {
    const std::unique_ptr<SerialTraining> serial = Serial();
    first = Epoch(1, *serial, 2);
    EXPECT_THAT(serial->Step(2), IsOk());
    EXPECT_THAT(serial->Step(2), IsOk());
    second = Epoch(3, *serial, 1);
    EXPECT_THAT(serial->Step(1), IsOk());
    digest = serial->ParameterDigest();
  }

  static json Epoch(int number, const SerialTraining& serial, int world_size) {
    return {{"epoch", number},
            {"step", serial.step()},
            {"samples", serial.samples()},
            {"world_size", world_size},
            {"parameter_digest", serial.ParameterDigest()},
            {"stall_seconds", number * 0.5}};
  }
};

json Report(std::vector<json> epochs) { return {{"epochs", std::move(epochs)}}; }

absl::Status Replayed(const EpochHistory& history, const TwoEpochs& run) {
  return history.Replay(3, run.digest, *Serial());
}

TEST(EpochHistory, IsPutTogetherFromReportsThatEachTellAPart) {
  const TwoEpochs run;
  EpochHistory history;
  LOCKSTEP_ASSERT_OK(history.Add("w1", Report({run.second})));
  LOCKSTEP_ASSERT_OK(history.Add("w0", Report({run.first})));
  EXPECT_EQ(history.longest_stall_seconds(), 0);  // neither was there before and after
  json stopped = run.second;
  stopped["stall_seconds"] = 7.0;
  LOCKSTEP_ASSERT_OK(history.Add("w2", Report({run.first, stopped})));
  EXPECT_EQ(history.longest_stall_seconds(), 7);
  LOCKSTEP_ASSERT_OK(history.Add("w3", Report({run.first, run.second})));
  EXPECT_EQ(history.longest_stall_seconds(), 1.5);
  EXPECT_EQ(history.longest_stall_seconds(1, 3), 1.5);
  EXPECT_EQ(history.longest_stall_seconds(0, 2), 0);  // epoch 1 has no step before
  EXPECT_EQ(history.longest_stall_seconds(3, 9), 0);  // none began
  EXPECT_EQ(history.epochs().size(), 2u);
  LOCKSTEP_EXPECT_OK(Replayed(history, run));
}

TEST(EpochHistory, WhatWasComputedOtherwiseIsFoundAndNamed) {
  const TwoEpochs run;
  const auto replayed = [&](const std::string& key, const json& value) {
    json second = run.second;
    second[key] = value;
    EpochHistory history;
    EXPECT_THAT(history.Add("w0", Report({run.first, second})), IsOk());
    return Replayed(history, run);
  };
  EXPECT_THAT(replayed("parameter_digest", "0123456789abcdef"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the begin of epoch 3")));
  EXPECT_THAT(replayed("samples", 13),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("13 samples")));
  EXPECT_THAT(replayed("step", 1), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(replayed("world_size", 2),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("behind step 3")));
}

TEST(EpochHistory, StepsThatAreTakenBackAreFound) {
  const TwoEpochs run;
  json third = run.first;
  third["epoch"] = 4;
  EpochHistory history;
  LOCKSTEP_ASSERT_OK(history.Add("w0", Report({run.first, run.second, third})));
  EXPECT_THAT(Replayed(history, run),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("epoch 4 took back")));
}

TEST(EpochHistory, ReportsThatContradictEachOtherAreNamed) {
  const TwoEpochs run;
  json other = run.second;
  other["step"] = 1;
  EpochHistory history;
  LOCKSTEP_ASSERT_OK(history.Add("w0", Report({run.first, run.second})));
  EXPECT_THAT(history.Add("w1", Report({other})),
              StatusIs(absl::StatusCode::kInternal,
                       testing::AllOf(HasSubstr("epoch 3"), HasSubstr("w0"), HasSubstr("w1"))));
}

TEST(EpochHistory, WithoutABeginOrAReportNothingIsTakenForRight) {
  const TwoEpochs run;
  EpochHistory history;
  EXPECT_THAT(history.Add("w0", json()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("w0 left no report")));
  EXPECT_THAT(Replayed(history, run), StatusIs(absl::StatusCode::kInternal));
  LOCKSTEP_ASSERT_OK(history.Add("w1", Report({run.second})));
  EXPECT_THAT(Replayed(history, run),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("how the job began")));
}

}  // namespace
}  // namespace lockstep
