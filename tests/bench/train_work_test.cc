#include "tests/bench/train_work.h"

#include <cmath>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainAccount Account(const std::string& system, int rank, const std::vector<double>& losses) {
  return {.system = system, .rank = rank, .parameters = 10, .buffers = 3, .losses = losses};
}

std::string Refusal(const std::vector<TrainAccount>& accounts) {
  const absl::Status status = CheckTraining(accounts);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  return std::string(status.message());
}

TEST(BatchBegin, RanksTakeConsecutiveWholeBatchesAndBeginAgain) {
  Prng prng(3);
  for (int round = 0; round < 200; ++round) {
    const int ranks = static_cast<int>(prng.Between(1, 4));
    const std::int64_t batch = prng.Between(1, 5);
    const std::int64_t images = prng.Between(batch, 40);
    std::int64_t expected = 0;
    for (std::int64_t step = 0; step < 20; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(BatchBegin(step, rank, ranks, batch, images), expected) << round;
        expected += batch;
        if (expected + batch > images) expected = 0;
      }
    }
  }
}

TEST(TrainAccount, SurvivesTheWayToTheBench) {
  const TrainAccount account = Account("peers", 1, {2.5, 0.25});
  const auto parsed = ParseTrainAccount(ToJson(account));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, account);
}

TEST(TrainAccount, WhatIsNoAccountIsRefused) {
  const nlohmann::json whole = ToJson(Account("ddp", 1, {2.5}));
  std::vector<nlohmann::json> wrong = {nullptr, nlohmann::json::array(), nlohmann::json::object()};
  for (const auto& [field, value] : whole.items()) {
    wrong.push_back(whole);
    wrong.back().erase(field);
    wrong.push_back(whole);
    wrong.back()[field] = nlohmann::json::object();
  }
  EXPECT_EQ(wrong.size(), 13);
  for (const nlohmann::json& json : wrong) {
    EXPECT_THAT(ParseTrainAccount(json).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(json.dump())));
  }
}

TEST(CheckTraining, LossesThatFellOnAllRanksAreTraining) {
  EXPECT_THAT(CheckTraining(std::vector{Account("lockstep", 0, {2.3, 2.0, 1.8, 1.4, 1.2}),
                                        Account("lockstep", 1, {2.5, 1.9, 1.7, 1.3, 1.1}),
                                        Account("peers", 0, {2.301, 2.01, 1.79, 1.3, 1.0}),
                                        Account("peers", 1, {2.499, 1.9, 1.7, 1.3, 0.9})}),
              IsOk());
}

TEST(CheckTraining, ALossThatDidNotFallIsNone) {
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3, 2.0}), Account("peers", 1, {2.3, 2.4})}),
              AllOf(HasSubstr("rank 1 of peers"), HasSubstr("did not fall: 2.3 at first, 2.4")));
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3, 2.3})}), HasSubstr("did not fall"));
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3})}), HasSubstr("fewer than two steps"));
}

TEST(CheckTraining, ALossThatIsNoNumberIsNone) {
  TrainAccount account = Account("lockstep", 0, {2.3, std::nan(""), 0.1});
  EXPECT_THAT(Refusal({account}), HasSubstr("not all finite"));
  // JSON has no such number.
  const auto parsed = ParseTrainAccount(nlohmann::json::parse(ToJson(account).dump()));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(Refusal({*parsed}), HasSubstr("not all finite"));
}

TEST(CheckTraining, AnotherModelIsOtherWork) {
  TrainAccount more = Account("peers", 0, {2.3, 2.0});
  more.parameters = 11;
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3, 2.0}), more}),
              AllOf(HasSubstr("rank 0 of lockstep and rank 0 of peers"),
                    HasSubstr("parameters 10 and 11")));
  more = Account("peers", 1, {2.3, 2.0});
  more.buffers = 2;
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3, 2.0}), more}), HasSubstr("buffers 3 and 2"));
  EXPECT_THAT(Refusal({Account("lockstep", 0, {2.3, 2.0}), Account("peers", 0, {2.3, 2.0, 1.0})}),
              HasSubstr("steps 2 and 3"));
}

TEST(CheckTraining, OtherDataOrInitialValuesShowInTheFirstLosses) {
  EXPECT_THAT(Refusal({Account("lockstep", 1, {2.3, 2.0}), Account("peers", 1, {2.34, 2.0})}),
              HasSubstr("loss of step 0 2.3 and 2.34"));
  EXPECT_THAT(Refusal({Account("lockstep", 1, {2.3, 2.0}), Account("peers", 1, {2.3, 1.9})}),
              HasSubstr("loss of step 1 2 and 1.9"));
  // Other ranks have other data, and later losses drift apart.
  EXPECT_THAT(CheckTraining(std::vector{Account("lockstep", 0, {2.3, 2.0, 1.9, 1.8}),
                                        Account("peers", 1, {2.4, 2.2, 1.8, 1.7}),
                                        Account("peers", 0, {2.3, 2.0, 1.9, 1.5})}),
              IsOk());
}

TEST(ChangeOf, IsTheMeanOfTheFirstAndTheLastFifth) {
  const LossChange change = ChangeOf(std::vector<double>{4, 2, 9, 9, 9, 9, 9, 9, 1, 0});
  EXPECT_EQ(change.first, 3);
  EXPECT_EQ(change.last, 0.5);
}

}  // namespace
}  // namespace lockstep
