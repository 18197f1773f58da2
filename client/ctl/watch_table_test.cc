#include "client/ctl/watch_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/ctl/step_rates.h"
#include "client/ctl/style.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;
using testing::Optional;
using testing::StartsWith;

const absl::Time kStart = absl::FromUnixSeconds(1000);

v1::WatchJobResponse AtStep(std::int64_t step, int workers = 1) {
  v1::WatchJobResponse state;
  v1::Job& job = *state.mutable_job();
  job.mutable_spec()->set_name("mnist");
  job.set_state(v1::Job::STATE_RUNNING);
  job.set_epoch(3);
  job.set_step(step);
  job.mutable_policy()->set_revision(2);
  job.mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_PENDING);
  for (int rank = 0; rank < workers; ++rank) {
    v1::Worker& worker = *state.add_workers();
    worker.set_name("w" + std::to_string(rank));
    worker.set_rank(rank);
    worker.set_state(v1::Worker::STATE_TRAINING);
    worker.set_phase("training");
    worker.set_step(step);
    worker.set_applied_log_number(7);
  }
  return state;
}

TEST(StepRates, AreKnownFromTwoLooksOn) {
  StepRates rates;
  EXPECT_EQ(rates.Of("w0", kStart), std::nullopt);
  rates.Look(AtStep(10), kStart);
  EXPECT_EQ(rates.Of("w0", kStart), std::nullopt);
  rates.Look(AtStep(30), kStart + absl::Seconds(4));
  EXPECT_THAT(rates.Of("w0", kStart + absl::Seconds(4)), Optional(DoubleEq(5)));
  EXPECT_EQ(rates.Of("w1", kStart), std::nullopt);
}

TEST(StepRates, CountFromWhenAStepWasFirstSeen) {
  StepRates rates;
  rates.Look(AtStep(10), kStart);
  rates.Look(AtStep(10), kStart + absl::Seconds(3));
  rates.Look(AtStep(18), kStart + absl::Seconds(4));
  EXPECT_THAT(rates.Of("w0", kStart + absl::Seconds(4)), Optional(DoubleEq(2)));
}

TEST(StepRates, FallWhileTheNextStepIsOverdue) {
  StepRates rates;
  rates.Look(AtStep(10), kStart);
  rates.Look(AtStep(18), kStart + absl::Seconds(2));
  rates.Look(AtStep(18), kStart + absl::Seconds(10));
  EXPECT_THAT(rates.Of("w0", kStart + absl::Seconds(4)), Optional(DoubleEq(4)));
  EXPECT_THAT(rates.Of("w0", kStart + absl::Seconds(10)), Optional(DoubleEq(1)));
}

TEST(StepRates, BeginAnewBehindAStepBackOrANewStart) {
  StepRates rates;
  rates.Look(AtStep(10), kStart);
  rates.Look(AtStep(5), kStart + absl::Seconds(1));
  EXPECT_EQ(rates.Of("w0", kStart + absl::Seconds(1)), std::nullopt);
  rates.Look(AtStep(6), kStart + absl::Seconds(2));
  EXPECT_THAT(rates.Of("w0", kStart + absl::Seconds(2)), Optional(DoubleEq(1)));
  v1::WatchJobResponse again = AtStep(9);
  again.mutable_workers(0)->set_incarnation(2);
  rates.Look(again, kStart + absl::Seconds(3));
  EXPECT_EQ(rates.Of("w0", kStart + absl::Seconds(3)), std::nullopt);
}

TEST(StepRates, AreNotKnownWhereNoTimeIsBetweenLooks) {
  StepRates rates;
  rates.Look(AtStep(10), kStart);
  rates.Look(AtStep(11), kStart);
  EXPECT_EQ(rates.Of("w0", kStart), std::nullopt);
}

TEST(RenderWatch, ShowsMembersByRankThenTheOthers) {
  v1::WatchJobResponse state = AtStep(120, 2);
  state.mutable_workers(0)->set_rank(1);
  state.mutable_workers(1)->set_rank(0);
  v1::Worker& waiting = *state.add_workers();
  waiting.set_name("a");
  waiting.set_rank(-1);
  waiting.set_state(v1::Worker::STATE_SUSPECT);
  StepRates rates;
  rates.Look(AtStep(110, 2), kStart);
  rates.Look(state, kStart + absl::Seconds(3));
  EXPECT_EQ(RenderWatch(state, rates, kStart + absl::Seconds(3), 24, Color::kOff),
            "mnist  running  epoch 3  step 120  policy 2 (pending)  workers 2\n"
            "\n"
            "RANK  NAME  STATE     PHASE     STEP  STEPS/S  LOG APPLIED\n"
            "   0  w1    training  training   120     3.33            7\n"
            "   1  w0    training  training   120     3.33            7\n"
            "   -  a     suspect                0        -            -\n");
  const std::string colored = RenderWatch(state, rates, kStart, 24, Color::kOn);
  EXPECT_THAT(colored, StartsWith("mnist  \x1b[32mrunning\x1b[0m  epoch 3"));
  EXPECT_THAT(colored, HasSubstr("policy 2 (\x1b[33mpending\x1b[0m)"));
  EXPECT_THAT(colored, HasSubstr("\x1b[31msuspect\x1b[0m    "));
}

std::ptrdiff_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(RenderWatch, FitsTheTerminal) {
  const StepRates none;
  EXPECT_EQ(Lines(RenderWatch(AtStep(1, 20), none, kStart, 23, Color::kOff)), 23);
  const std::string cut = RenderWatch(AtStep(1, 21), none, kStart, 23, Color::kOff);
  EXPECT_EQ(Lines(cut), 23);
  EXPECT_THAT(cut, HasSubstr("\nand 2 more\n"));
  EXPECT_LE(Lines(RenderWatch(AtStep(1, 21), none, kStart, 4, Color::kOff)), 4);
}

TEST(RenderWatch, KeepsADetailOfManyLinesOnOne) {
  v1::WatchJobResponse state = AtStep(1);
  state.mutable_job()->set_state(v1::Job::STATE_WAITING);
  state.mutable_job()->set_detail("one\ntwo\x1b[2J");
  const std::string frame = RenderWatch(state, StepRates(), kStart, 24, Color::kOff);
  EXPECT_EQ(Lines(frame), 4);
  EXPECT_THAT(frame, HasSubstr("one two [2J\n"));
}

TEST(RewindOver, GoesUpAsManyLinesAsThereAre) {
  EXPECT_EQ(RewindOver(""), "");
  EXPECT_EQ(RewindOver("a\nb\n\n"), "\x1b[3A\r\x1b[J");
}

}  // namespace
}  // namespace lockstep
