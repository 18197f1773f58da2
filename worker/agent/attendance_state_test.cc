#include "worker/agent/attendance_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string ToText(const Hello& m) {
  return absl::StrCat("Hello epoch=", m.epoch.value(), " log=", m.log_number.value());
}
std::string ToText(const Heartbeat& m) {
  return absl::StrCat("Heartbeat epoch=", m.epoch.value(), " step=", m.step,
                      " metrics=", m.metrics.size(), " syncs=", m.sync.syncs);
}
std::string ToText(const Endpoint& m) {
  return absl::StrCat("Endpoint epoch=", m.epoch.value(), " ", m.bytes);
}
std::string ToText(const Ready& m) { return absl::StrCat("Ready epoch=", m.epoch.value()); }
std::string ToText(const Applied& m) {
  return absl::StrCat("Applied epoch=", m.epoch.value(), " log=", m.number.value(),
                      " step=", m.step);
}
std::string ToText(const EpochStopped& m) {
  return absl::StrCat("EpochStopped epoch=", m.epoch.value(), " step=", m.step, " ",
                      m.why.ToString());
}
std::string ToText(const Leave& m) {
  return absl::StrCat("Leave epoch=", m.epoch.value(), " ", m.why.ToString());
}

// "drop; dial 2; Hello epoch=0 log=0; close": effects in the order of their run.
std::string ToText(const AttendanceEffects& effects) {
  std::vector<std::string> lines;
  if (effects.drop) lines.push_back("drop");
  if (effects.dial != 0) lines.push_back(absl::StrCat("dial ", effects.dial));
  for (const WorkerMessage& message : effects.send) {
    lines.push_back(std::visit([](const auto& m) { return ToText(m); }, message));
  }
  if (effects.close) lines.push_back("close");
  return absl::StrJoin(lines, "; ");
}

Welcome WelcomeOf(int generation) {
  return {.generation = Generation(generation),
          .lease = absl::Seconds(10),
          .heartbeat_interval = absl::Seconds(1)};
}

Proposal ProposalOf(int epoch, int log_number) {
  return {.epoch = Epoch(epoch), .members = {"a", "b"}, .log_number = LogNumber(log_number)};
}

NewEntries EntriesOf(std::vector<int> numbers) {
  NewEntries message;
  for (const int number : numbers) {
    const ControlEntry entry = {LogNumber(number), SyncOnce{}};
    message.entries.push_back(entry);
  }
  return message;
}

// Steps a state by hand.
class Script {
 public:
  Script() : state_({.job = "j", .worker = "b", .incarnation = Incarnation(77)}) {}

  std::string Do(const AttendanceEvent& event) { return ToText(state_.Step(now_, event)); }
  // A message on the stream dialled last.
  std::string Hear(CoordinatorMessage message) {
    return Do(Received{stream_, std::move(message)});
  }
  std::string End(const absl::Status& status) { return Do(StreamEnded{stream_, status}); }
  // Goes to the time the state asks for; `stream` counts on if it dials then.
  std::string Wake() {
    now_ = state_.wake_at();
    const AttendanceEffects effects = state_.Step(now_, TimePassed{});
    if (effects.dial != 0) stream_ = effects.dial;
    return ToText(effects);
  }
  absl::Duration UntilWake() const { return state_.wake_at() - now_; }

  // Attends with `epoch` taken.
  void Join(int epoch, int log_number) {
    Do(Attend{});
    Hear(WelcomeOf(1));
    Wake();  // the first heartbeat
    Hear(ProposalOf(epoch, log_number));
    ASSERT_TRUE(state_.TakeProposal().has_value());
  }
  std::vector<int> Log(int after) const {
    std::vector<int> numbers;
    for (const ControlEntry& entry : state_.EntriesAfter(LogNumber(after))) {
      numbers.push_back(static_cast<int>(entry.number.value()));
    }
    return numbers;
  }

  AttendanceState& state() { return state_; }

 private:
  AttendanceState state_;
  MonoTime now_ = MonoTime::FromNanos(1'000'000'000);
  std::int64_t stream_ = 1;
};

using Numbers = std::vector<int>;

TEST(AttendanceState, FollowsAnEpochFromHelloToLeave) {
  Script s;
  EXPECT_EQ(s.Do(Attend{}), "dial 1; Hello epoch=0 log=0");
  EXPECT_FALSE(s.state().attending());
  EXPECT_EQ(s.Hear(WelcomeOf(1)), "");
  EXPECT_TRUE(s.state().attending());
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=0 step=0 metrics=0 syncs=0");
  EXPECT_EQ(s.UntilWake(), absl::Seconds(1));

  EXPECT_FALSE(s.state().TakeProposal().has_value());
  EXPECT_EQ(s.Hear(ProposalOf(3, 5)), "");
  EXPECT_EQ(s.state().TakeProposal()->epoch, Epoch(3));
  EXPECT_FALSE(s.state().TakeProposal().has_value()) << "a proposal is handed out once";

  EXPECT_EQ(s.Do(EndpointOffered{Epoch(3), "here"}), "Endpoint epoch=3 here");
  s.Hear(Endpoint{Epoch(3), "there"});
  EXPECT_EQ(s.state().endpoint(), "there");
  EXPECT_EQ(s.Do(BecameReady{{.epoch = Epoch(3)}}), "Ready epoch=3");
  EXPECT_FALSE(s.state().started());
  s.Hear(Start{Epoch(3)});
  EXPECT_TRUE(s.state().started());

  s.Hear(EntriesOf({6}));
  EXPECT_EQ(s.Log(5), Numbers{6});
  EXPECT_EQ(s.Do(EntryTookEffect{LogNumber(6), 41}), "Applied epoch=3 log=6 step=41");
  EXPECT_EQ(s.Do(ProgressMade{42, Phase::kTraining, {{"loss", 0.5}}, {.syncs = 9}}), "");
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=3 step=42 metrics=1 syncs=9");

  // The steps since the last heartbeat are told before it leaves.
  s.Do(ProgressMade{43, Phase::kTraining, {}, {.syncs = 10}});
  EXPECT_EQ(s.Do(Leaving{absl::OkStatus()}),
            "Heartbeat epoch=3 step=43 metrics=0 syncs=10; Leave epoch=3 OK; close");
  EXPECT_FALSE(s.state().over());
  EXPECT_EQ(s.End(absl::OkStatus()), "drop");
  EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("left")));
  EXPECT_EQ(s.state().wake_at(), MonoTime::Infinite());
}

TEST(AttendanceState, DialsAgainWithItsEpochAndLogAndRepeatsWhatMayBeLost) {
  Script s;
  s.Join(3, 5);
  s.Do(EndpointOffered{Epoch(3), "here"});
  EXPECT_EQ(s.End(absl::UnavailableError("reset")), "drop");
  EXPECT_FALSE(s.state().attending());
  EXPECT_EQ(s.Wake(), "dial 2; Hello epoch=3 log=5; Endpoint epoch=3 here");

  s.Hear(WelcomeOf(1));
  s.Hear(Endpoint{Epoch(3), "here"});
  s.Do(BecameReady{{.epoch = Epoch(3)}});
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Wake(), "dial 3; Hello epoch=3 log=5; Ready epoch=3");

  s.Hear(WelcomeOf(1));
  s.Hear(Start{Epoch(3)});
  s.Hear(EntriesOf({6, 7}));
  s.Do(EntryTookEffect{LogNumber(6), 10});
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Do(EntryTookEffect{LogNumber(7), 11}), "") << "there is no stream to say it on";
  EXPECT_EQ(s.Wake(),
            "dial 4; Hello epoch=3 log=7; Applied epoch=3 log=6 step=10; "
            "Applied epoch=3 log=7 step=11");
}

TEST(AttendanceState, SaysThatItStoppedUntilTheCoordinatorEndsTheEpoch) {
  Script s;
  s.Join(3, 5);
  s.Hear(Start{Epoch(3)});
  s.Hear(EntriesOf({6}));
  s.Do(EntryTookEffect{LogNumber(6), 10});
  EXPECT_EQ(s.Do(EpochStopping{Epoch(2), 9, absl::OkStatus()}), "") << "an epoch before";
  EXPECT_EQ(s.Do(EpochStopping{Epoch(3), 10, absl::OkStatus()}),
            "EpochStopped epoch=3 step=10 OK");
  EXPECT_THAT(s.state().EpochStatus(Epoch(3)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("regroups behind step 10")));
  EXPECT_FALSE(s.state().taken_was_aborted());
  EXPECT_EQ(s.Do(EpochStopping{Epoch(3), 11, absl::OkStatus()}), "") << "once";
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=3 step=10 metrics=0 syncs=0");

  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Wake(),
            "dial 2; Hello epoch=3 log=6; Applied epoch=3 log=6 step=10; "
            "EpochStopped epoch=3 step=10 OK");
  s.Hear(WelcomeOf(1));
  s.Wake();
  EXPECT_EQ(s.state().TakeProposal(), std::nullopt);

  s.Hear(AbortEpoch{Epoch(3), absl::AbortedError("regrouped")});
  EXPECT_FALSE(s.state().taken_was_aborted());
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=0 step=10 metrics=0 syncs=0");
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Wake(), "dial 3; Hello epoch=0 log=6");
}

TEST(AttendanceState, ANewerProposalIsTheAnswerToAStop) {
  Script s;
  s.Join(3, 0);
  s.Hear(Start{Epoch(3)});
  EXPECT_EQ(s.Do(EpochStopping{Epoch(3), 7, absl::UnavailableError("lost a")}),
            "EpochStopped epoch=3 step=7 UNAVAILABLE: lost a");
  s.Hear(ProposalOf(4, 0));
  ASSERT_TRUE(s.state().TakeProposal().has_value());
  LOCKSTEP_EXPECT_OK(s.state().EpochStatus(Epoch(4)));
  s.Hear(AbortEpoch{Epoch(4), absl::UnavailableError("b is lost")});
  EXPECT_TRUE(s.state().taken_was_aborted());
  EXPECT_EQ(s.Do(EpochStopping{Epoch(4), 7, absl::UnavailableError("lost b")}), "")
      << "the coordinator has said so itself";
}

TEST(AttendanceState, ADrainedWorkerDoesNotDialAgain) {
  for (const bool has_stopped : {true, false}) {
    Script s;
    s.Join(3, 0);
    if (has_stopped) s.Do(EpochStopping{Epoch(3), 7, absl::OkStatus()});
    EXPECT_EQ(s.Hear(AbortEpoch{Epoch(3), absl::CancelledError("drained")}), "drop");
    EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kCancelled, "drained"));
    EXPECT_EQ(s.End(absl::CancelledError("drained")), "");
    EXPECT_EQ(s.state().wake_at(), MonoTime::Infinite());
  }
}

TEST(AttendanceState, LeavesAnEpochThatItStopped) {
  Script s;
  s.Join(3, 0);
  s.Do(EpochStopping{Epoch(3), 7, absl::OkStatus()});
  EXPECT_EQ(s.Do(Leaving{absl::OkStatus()}),
            "Heartbeat epoch=3 step=7 metrics=0 syncs=0; Leave epoch=3 OK; close");
}

TEST(AttendanceState, ForgetsWhatItSaidInAnEpochThatIsOver) {
  Script s;
  s.Join(3, 5);
  s.Do(BecameReady{{.epoch = Epoch(3)}});
  s.Do(EntryTookEffect{LogNumber(5), 1});
  s.Hear(AbortEpoch{Epoch(3), absl::UnavailableError("a is lost")});
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Wake(), "dial 2; Hello epoch=0 log=5");
  s.Hear(ProposalOf(4, 5));
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Wake(), "dial 3; Hello epoch=4 log=5");
}

TEST(AttendanceState, WaitsLongerAfterEachFailureUpToTwoSecondsAndAnewAfterAWelcome) {
  Script s;
  s.Do(Attend{});
  absl::Duration base = kMinRedialDelay;
  for (int failure = 0; failure < 20; ++failure) {
    s.End(absl::UnavailableError("refused"));
    EXPECT_GE(s.UntilWake(), base / 2) << failure;
    EXPECT_LE(s.UntilWake(), base) << failure;
    base = std::min(2 * base, kMaxRedialDelay);
    s.Wake();
  }
  s.Hear(WelcomeOf(1));
  s.End(absl::UnavailableError("reset"));
  EXPECT_LE(s.UntilWake(), kMinRedialDelay);
}

TEST(AttendanceState, JitterDiffersBetweenIncarnationsAndRepeatsForOne) {
  const auto delay = [](int incarnation) {
    AttendanceState state({.job = "j", .worker = "b", .incarnation = Incarnation(incarnation)});
    const MonoTime now = MonoTime::FromNanos(1);
    state.Step(now, Attend{});
    state.Step(now, StreamEnded{1, absl::UnavailableError("refused")});
    return state.wake_at() - now;
  };
  EXPECT_EQ(delay(1), delay(1));
  EXPECT_NE(delay(1), delay(2));
}

TEST(AttendanceState, TellsBreaksFromFinalStatuses) {
  struct Case {
    absl::StatusCode code;
    bool is_break;
  };
  for (const Case& c : std::vector<Case>{{absl::StatusCode::kOk, true},
                                         {absl::StatusCode::kUnavailable, true},
                                         {absl::StatusCode::kDeadlineExceeded, true},
                                         {absl::StatusCode::kCancelled, true},
                                         {absl::StatusCode::kInternal, true},
                                         {absl::StatusCode::kNotFound, false},
                                         {absl::StatusCode::kInvalidArgument, false},
                                         {absl::StatusCode::kAborted, false},
                                         {absl::StatusCode::kResourceExhausted, false},
                                         {absl::StatusCode::kPermissionDenied, false},
                                         {absl::StatusCode::kUnknown, false}}) {
    Script s;
    s.Join(3, 0);
    EXPECT_EQ(s.End(absl::Status(c.code, "why")), "drop");
    EXPECT_EQ(s.state().over(), !c.is_break) << absl::StatusCodeToString(c.code);
    // A break says nothing about the epoch, the end of the link ends it.
    EXPECT_EQ(s.state().EpochStatus(Epoch(3)).ok(), c.is_break);
    EXPECT_EQ(s.state().taken_end().ok(), c.is_break);
    EXPECT_EQ(s.state().end(), c.is_break ? absl::OkStatus() : absl::Status(c.code, "why"));
  }
}

TEST(AttendanceState, GivesUpAStreamWithoutWelcome) {
  Script s;
  s.Do(Attend{});
  EXPECT_EQ(s.UntilWake(), kWelcomeTimeout);
  EXPECT_EQ(s.Wake(), "drop");
  EXPECT_THAT(s.state().last_break(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no answer")));
  EXPECT_EQ(s.Wake(), "dial 2; Hello epoch=0 log=0");
}

TEST(AttendanceState, TurnsFromACoordinatorOlderThanTheLast) {
  Script s;
  s.Do(Attend{});
  s.Hear(WelcomeOf(5));
  s.End(absl::UnavailableError("reset"));
  s.Wake();
  EXPECT_EQ(s.Hear(WelcomeOf(4)), "drop");
  EXPECT_FALSE(s.state().attending());
  EXPECT_THAT(s.state().last_break(), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("generation 4 answered, older than 5")));
  s.Wake();
  EXPECT_EQ(s.Hear(WelcomeOf(6)), "");
  EXPECT_TRUE(s.state().attending());
}

TEST(AttendanceState, RefusesAWelcomeWithoutGenerationOrHeartbeatInterval) {
  Script s;
  s.Do(Attend{});
  s.Hear(Welcome{.generation = Generation(1)});
  EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("every 0")));
  Script t;
  t.Do(Attend{});
  t.Hear(Welcome{.heartbeat_interval = absl::Seconds(1)});
  EXPECT_THAT(t.state().end(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no generation")));
  EXPECT_FALSE(t.state().has_attended());
}

TEST(AttendanceState, IgnoresWhatAnOldStreamStillSays) {
  Script s;
  s.Join(3, 0);
  s.End(absl::UnavailableError("reset"));
  s.Wake();
  s.Do(Received{1, ProposalOf(4, 0)});
  EXPECT_FALSE(s.state().TakeProposal().has_value());
  EXPECT_EQ(s.Do(StreamEnded{1, absl::NotFoundError("late")}), "");
  EXPECT_FALSE(s.state().over());
}

TEST(AttendanceState, IgnoresMessagesOfOtherEpochs) {
  Script s;
  s.Join(3, 0);
  s.Hear(ProposalOf(2, 0));
  s.Hear(ProposalOf(3, 0));
  EXPECT_FALSE(s.state().TakeProposal().has_value());
  s.Hear(Endpoint{Epoch(2), "old"});
  EXPECT_EQ(s.state().endpoint(), std::nullopt);
  s.Hear(Start{Epoch(2)});
  EXPECT_FALSE(s.state().started());
  s.Hear(AbortEpoch{Epoch(2), absl::UnavailableError("old")});
  LOCKSTEP_EXPECT_OK(s.state().EpochStatus(Epoch(3)));
  EXPECT_EQ(s.Do(EndpointOffered{Epoch(2), "old"}), "");
  EXPECT_EQ(s.Do(BecameReady{{.epoch = Epoch(2)}}), "");
}

TEST(AttendanceState, AnAbortEndsTheEpochAndTheNextProposalIsHandedOut) {
  Script s;
  s.Join(3, 0);
  s.Hear(AbortEpoch{Epoch(3), absl::UnavailableError("the lease of a ended")});
  EXPECT_THAT(s.state().EpochStatus(Epoch(3)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("the lease of a ended")));
  EXPECT_FALSE(s.state().taken_end().ok());
  s.Hear(ProposalOf(4, 0));
  EXPECT_THAT(s.state().EpochStatus(Epoch(3)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("the lease of a ended")));
  ASSERT_TRUE(s.state().TakeProposal().has_value());
  LOCKSTEP_EXPECT_OK(s.state().taken_end());
  LOCKSTEP_EXPECT_OK(s.state().EpochStatus(Epoch(4)));
}

TEST(AttendanceState, AProposalThatEndedIsNotHandedOut) {
  Script s;
  s.Do(Attend{});
  s.Hear(WelcomeOf(1));
  s.Hear(ProposalOf(3, 0));
  s.Hear(AbortEpoch{Epoch(3), absl::UnavailableError("a is lost")});
  EXPECT_FALSE(s.state().TakeProposal().has_value());
}

TEST(AttendanceState, ANewerProposalEndsTheEpochBeforeIt) {
  Script s;
  s.Join(3, 0);
  s.Hear(ProposalOf(4, 0));
  EXPECT_THAT(s.state().taken_end(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 4 was proposed")));
}

TEST(AttendanceState, RefusesAProposalWithoutThisWorker) {
  Script s;
  s.Do(Attend{});
  Proposal proposal = ProposalOf(3, 0);
  proposal.members = {"a", "c"};
  EXPECT_EQ(s.Hear(proposal), "drop");
  EXPECT_THAT(s.state().end(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("worker 'b'")));
}

TEST(AttendanceState, KeepsTheLogContiguous) {
  Script s;
  s.Join(1, 5);
  s.Hear(EntriesOf({4, 5, 6}));
  s.Hear(EntriesOf({6, 7}));
  s.Hear(EntriesOf({}));
  EXPECT_EQ(s.Log(5), (Numbers{6, 7}));
  EXPECT_EQ(s.Log(6), Numbers{7});
  EXPECT_EQ(s.Log(7), Numbers{});
  EXPECT_EQ(s.Log(8), Numbers{});
  EXPECT_EQ(s.Log(4), Numbers{}) << "entry 5 is not held: 6 does not follow 4 without a gap";
}

TEST(AttendanceState, AGapInTheLogEndsTheLinkAndAddsNothing) {
  for (const Numbers& batch : {Numbers{7}, Numbers{6, 8}, Numbers{6, 7, 5, 9}}) {
    Script s;
    s.Join(1, 5);
    EXPECT_EQ(s.Hear(EntriesOf(batch)), "drop");
    EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected")));
    EXPECT_EQ(s.Log(5), Numbers{});
    EXPECT_FALSE(s.state().taken_end().ok()) << "training must not go on out of step";
  }
}

TEST(AttendanceState, AProposalMovesTheLogsBeginning) {
  Script s;
  s.Do(Attend{});
  s.Hear(EntriesOf({3, 4, 5}));
  s.Hear(ProposalOf(1, 4));
  EXPECT_EQ(s.Log(4), Numbers{5});
  s.Hear(ProposalOf(2, 9));
  EXPECT_EQ(s.Log(9), Numbers{});
  s.Hear(EntriesOf({10}));
  EXPECT_EQ(s.Log(9), Numbers{10});
  EXPECT_EQ(s.Log(5), Numbers{});

  Script gap;
  gap.Do(Attend{});
  gap.Hear(EntriesOf({3}));
  gap.Hear(ProposalOf(1, 1));
  EXPECT_THAT(gap.state().end(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("entries 2 to 2 are missing")));
}

TEST(AttendanceState, KeepsWithinItsBounds) {
  Script s;
  s.Join(1, 0);
  std::map<std::string, double> metrics;
  const std::string too_long(129, 'x');
  s.Do(ProgressMade{1, Phase::kTraining, {{"", 1}, {"loss", 1}, {too_long, 1}, {"\n", 1}}, {}});
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=1 step=1 metrics=1 syncs=0");
  for (int i = 0; i < 100; ++i) metrics[absl::StrCat("m", i)] = i;
  s.Do(ProgressMade{1, Phase::kTraining, metrics, {}});
  EXPECT_EQ(s.Wake(), "Heartbeat epoch=1 step=1 metrics=32 syncs=0");

  // A log that is applied as it comes has no end.
  int number = 0;
  for (; number < 2 * static_cast<int>(kMaxLogEntries);) {
    ++number;
    s.Hear(EntriesOf({number}));
    s.Do(EntryTookEffect{LogNumber(number), number});
  }
  EXPECT_FALSE(s.state().over());
  EXPECT_EQ(s.Log(number - 1), Numbers{number});
  s.End(absl::UnavailableError("reset"));
  s.Wake();
  // One that nobody applies has.
  for (std::size_t i = 0; i <= kMaxLogEntries; ++i) s.Hear(EntriesOf({++number}));
  EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(AttendanceState, RepeatsOnlyTheNewestAppliedEntries) {
  AttendanceState state({.job = "j", .worker = "b", .incarnation = Incarnation(1)});
  const MonoTime now;
  state.Step(now, Attend{});
  state.Step(now, Received{1, ProposalOf(1, 0)});
  for (int i = 1; i <= 1000; ++i) state.Step(now, EntryTookEffect{LogNumber(i), i});
  state.Step(now, StreamEnded{1, absl::UnavailableError("reset")});
  const AttendanceEffects effects = state.Step(state.wake_at(), TimePassed{});
  ASSERT_EQ(effects.send.size(), 1 + kMaxRepeatedApplied);
  EXPECT_EQ(std::get<Applied>(effects.send.back()).number, LogNumber(1000));
}

TEST(AttendanceState, LeavesOnANewStreamWhenThereIsNone) {
  Script s;
  s.Join(3, 5);
  s.End(absl::UnavailableError("reset"));
  EXPECT_EQ(s.Do(Leaving{absl::InternalError("broken")}),
            "dial 2; Hello epoch=3 log=5; Leave epoch=3 INTERNAL: broken; close");
  EXPECT_EQ(s.Do(EntryTookEffect{LogNumber(6), 1}), "") << "nothing follows Leave";
  EXPECT_EQ(s.Do(StreamEnded{2, absl::UnavailableError("refused")}), "drop");
  EXPECT_EQ(s.Wake(), "dial 3; Hello epoch=3 log=5; Applied epoch=3 log=6 step=1; "
                      "Leave epoch=3 INTERNAL: broken; close");
  EXPECT_EQ(s.End(absl::AbortedError("unknown by now")), "drop");
  EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(AttendanceState, DoesNotJoinAgainToLeaveTwice) {
  for (const absl::Status& end : {absl::OkStatus(), absl::CancelledError("closed"),
                                  absl::InternalError("odd"), absl::NotFoundError("gone")}) {
    Script s;
    s.Join(3, 5);
    s.Do(Leaving{absl::OkStatus()});
    EXPECT_EQ(s.End(end), "drop");
    EXPECT_THAT(s.state().end(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("left")));
  }
}

TEST(AttendanceState, GivesUpALeaveThatIsNotAnswered) {
  Script s;
  s.Join(3, 5);
  s.Do(Leaving{absl::OkStatus()});
  EXPECT_EQ(s.UntilWake(), kLeaveTimeout);
  EXPECT_EQ(s.Wake(), "drop");
  EXPECT_TRUE(s.state().over());
}

}  // namespace
}  // namespace lockstep
