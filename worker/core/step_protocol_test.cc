#include "worker/core/step_protocol.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A policy under which nothing is due unless a test says so.
SyncPolicy Quiet() {
  return {.schedule = {.at_start = false, .every_forwards = 0},
          .broadcast_parameters_at_start = false};
}
SyncPolicy EveryForwards(std::int64_t k) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_forwards = k;
  return policy;
}
SyncPolicy EverySteps(std::int64_t n) {
  SyncPolicy policy = Quiet();
  policy.schedule.every_steps = n;
  return policy;
}
SyncPolicy AllowOnly(const std::string& pattern) {
  SyncPolicy policy = Quiet();
  policy.allow_list = {pattern};
  return policy;
}

StepProtocol Protocol(const SyncPolicy& policy) {
  return *StepProtocol::Create({"w0", "w1", "w2"}, LogNumber(0), Revision(1), policy);
}

ControlEntry Revise(std::int64_t number, const SyncPolicy& policy) {
  return {LogNumber(number), PolicyRevised{Revision(number + 1), policy}};
}
ControlEntry Once(std::int64_t number, const SyncOnce& once) { return {LogNumber(number), once}; }

Agreement Agreed(std::int64_t log_number) {
  return {.log_number = LogNumber(log_number), .samples = 1};
}

// Under a policy without rules: its one treatment, due by broadcast from `root`.
MATCHER_P(IsBufferSync, root, "") {
  return arg.rules != nullptr && arg.parameters == SyncTask::Parameters::kNothing &&
         arg.buffers == std::vector<std::optional<BufferSync>>{BufferSync{.root = root}};
}
MATCHER_P2(IsParameterTask, what, root, "") {
  return arg.rules != nullptr && !arg.has_buffers() && arg.parameters == what && arg.root == root;
}
constexpr auto kBroadcast = SyncTask::Parameters::kBroadcast;
constexpr auto kCheck = SyncTask::Parameters::kCheck;

// What Revise(number) gives when it takes effect after `step`.
AppliedEntry AppliedRevision(std::int64_t number, std::int64_t step) {
  return {.number = LogNumber(number), .revision = Revision(number + 1), .step = step};
}

TEST(StepProtocol, AppliesOnlyEntriesUpToTheAgreedNumberInOrder) {
  StepProtocol protocol = Protocol(Quiet());
  for (int n = 1; n <= 4; ++n) LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(n, Quiet())));
  EXPECT_EQ(protocol.known(), LogNumber(4));
  EXPECT_EQ(protocol.Propose(5).log_number, 4);

  StepOutcome outcome = protocol.Commit(Agreed(0));
  EXPECT_THAT(outcome.applied, IsEmpty());
  EXPECT_EQ(protocol.revision(), Revision(1));

  outcome = protocol.Commit(Agreed(3));
  EXPECT_EQ(outcome.step, 2);
  EXPECT_THAT(outcome.applied, ElementsAre(AppliedRevision(1, 2), AppliedRevision(2, 2),
                                           AppliedRevision(3, 2)));
  EXPECT_EQ(protocol.applied(), LogNumber(3));
  EXPECT_EQ(protocol.revision(), Revision(4));

  outcome = protocol.Commit(Agreed(4));
  EXPECT_THAT(outcome.applied, ElementsAre(AppliedRevision(4, 3)));
  EXPECT_EQ(protocol.revision(), Revision(5));
}

TEST(StepProtocol, ProposesTheStepInProgressAndItsSamples) {
  StepProtocol protocol = Protocol(Quiet());
  EXPECT_EQ(protocol.step(), 0);
  EXPECT_EQ(protocol.Propose(7).step, 1);
  EXPECT_EQ(protocol.Propose(7).samples, 7);
  protocol.Commit(Agreed(0));
  EXPECT_EQ(protocol.step(), 1);
  EXPECT_EQ(protocol.Propose(0).step, 2);
}

// Three ranks hear of 40 entries at their own random pace; the agreed number is
// the minimum, and at each step all run under one revision.
TEST(StepProtocol, EarlyAndLateRanksSwitchAtTheSameStep) {
  constexpr int kRanks = 3;
  constexpr int kEntries = 40;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Prng prng(seed);
    std::vector<StepProtocol> ranks(kRanks, Protocol(Quiet()));
    int steps = 0;
    while (ranks[0].applied() != LogNumber(kEntries)) {
      ASSERT_LT(++steps, 10'000) << seed;
      std::int64_t agreed = kEntries;
      for (StepProtocol& rank : ranks) {
        const std::int64_t known = rank.known().value();
        const auto now = std::min<std::int64_t>(kEntries, known + prng.Between(0, 3));
        for (std::int64_t n = known + 1; n <= now; ++n) {
          LOCKSTEP_ASSERT_OK(rank.Learn(Revise(n, Quiet())));
        }
        agreed = std::min(agreed, rank.Propose(1).log_number);
      }
      const StepOutcome first = ranks[0].Commit(Agreed(agreed));
      for (int rank = 1; rank < kRanks; ++rank) {
        EXPECT_EQ(ranks[rank].Commit(Agreed(agreed)).applied, first.applied) << seed;
        EXPECT_EQ(ranks[rank].revision(), ranks[0].revision()) << seed;
      }
    }
  }
}

TEST(StepProtocol, LearnSkipsWhatIsKnownAndRefusesGaps) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      StepProtocol protocol,
      StepProtocol::Create({"w0"}, LogNumber(5), Revision(3), Quiet()));
  LOCKSTEP_EXPECT_OK(protocol.Learn(Revise(4, EveryForwards(1))));  // part of the policy
  EXPECT_EQ(protocol.known(), LogNumber(5));
  EXPECT_THAT(protocol.Learn(Revise(7, Quiet())),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("6 was expected")));
  EXPECT_EQ(protocol.known(), LogNumber(5));
  LOCKSTEP_EXPECT_OK(protocol.Learn(Revise(6, Quiet())));
  LOCKSTEP_EXPECT_OK(protocol.Learn(Revise(6, EveryForwards(1))));
  EXPECT_THAT(protocol.Commit(Agreed(6)).applied, ElementsAre(AppliedRevision(6, 1)));
  EXPECT_EQ(protocol.policy(), Quiet());
}

TEST(StepProtocol, LearnRefusesAPolicyThatIsNotValid) {
  StepProtocol protocol = Protocol(Quiet());
  EXPECT_THAT(protocol.Learn(Revise(1, AllowOnly("re:("))),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(protocol.known(), LogNumber(0));
  EXPECT_THAT(StepProtocol::Create({"w0"}, LogNumber(0), Revision(1), AllowOnly("re:(")),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StepProtocol, LearnBoundsWhatWaitsAndGoesOnOnceThatIsApplied) {
  StepProtocol protocol = Protocol(Quiet());
  for (int n = 1; n <= kMaxPendingEntries; ++n) {
    LOCKSTEP_ASSERT_OK(protocol.Learn(Once(n, {})));
  }
  const ControlEntry next = Once(kMaxPendingEntries + 1, {});
  EXPECT_THAT(protocol.Learn(next), StatusIs(absl::StatusCode::kResourceExhausted));
  protocol.Commit(Agreed(1));
  LOCKSTEP_EXPECT_OK(protocol.Learn(next));
}

TEST(StepProtocol, RepeatedForwardsOfOneStepTriggerNothing) {
  StepProtocol protocol = Protocol(EveryForwards(1));
  EXPECT_THAT(protocol.BeforeForward(), ElementsAre(IsBufferSync(0)));
  EXPECT_THAT(protocol.BeforeForward(), IsEmpty());
  EXPECT_THAT(protocol.BeforeForward(), IsEmpty());
  protocol.Commit(Agreed(0));
  EXPECT_THAT(protocol.BeforeForward(), ElementsAre(IsBufferSync(0)));
}

TEST(StepProtocol, EveryForwardsCountsTheFirstForwardOfEachStep) {
  for (int k = 1; k <= 4; ++k) {
    StepProtocol protocol = Protocol(EveryForwards(k));
    for (int step = 1; step <= 12; ++step) {
      EXPECT_EQ(protocol.BeforeForward().size(), step % k == 0 ? 1u : 0u) << step;
      EXPECT_THAT(protocol.BeforeForward(), IsEmpty());
      protocol.Commit(Agreed(0));
    }
  }
}

TEST(StepProtocol, EveryStepsIsDueAfterEachNthStep) {
  StepProtocol protocol = Protocol(EverySteps(3));
  for (int step = 1; step <= 9; ++step) {
    EXPECT_THAT(protocol.BeforeForward(), IsEmpty());
    EXPECT_EQ(protocol.Commit(Agreed(0)).due.size(), step % 3 == 0 ? 1u : 0u) << step;
  }
}

TEST(StepProtocol, BeforeEvaluationIsDueOnlyIfAskedFor) {
  EXPECT_THAT(Protocol(Quiet()).BeforeEvaluation(), IsEmpty());
  SyncPolicy policy = Quiet();
  policy.schedule.before_evaluation = true;
  policy.root = RootRank{1};
  EXPECT_THAT(Protocol(policy).BeforeEvaluation(), ElementsAre(IsBufferSync(1)));
  policy.broadcast_buffers = false;
  EXPECT_THAT(Protocol(policy).BeforeEvaluation(), IsEmpty());
}

TEST(StepProtocol, AtStartIsIndependentOfTheMasterSwitch) {
  struct Case {
    bool master, at_start, parameters;
  };
  for (const Case& c : {Case{false, true, false}, Case{true, true, true}, Case{false, false, true},
                        Case{false, true, true}, Case{true, false, false}}) {
    SyncPolicy policy = Quiet();
    policy.broadcast_buffers = c.master;
    policy.schedule.at_start = c.at_start;
    policy.broadcast_parameters_at_start = c.parameters;
    const auto tasks = Protocol(policy).AtStart();
    ASSERT_EQ(tasks.size(), (c.at_start ? 1u : 0u) + (c.parameters ? 1u : 0u));
    if (c.parameters) {
      EXPECT_THAT(tasks.front(), IsParameterTask(kBroadcast, 0));
    }
    if (c.at_start) {
      EXPECT_THAT(tasks.back(), IsBufferSync(0));
    }
  }
}

TEST(StepProtocol, TheMasterSwitchTurnsTheSchedulesOff) {
  SyncPolicy policy;  // every forward
  policy.schedule.every_steps = 1;
  policy.broadcast_buffers = false;
  StepProtocol protocol = Protocol(policy);
  EXPECT_THAT(protocol.BeforeForward(), IsEmpty());
  EXPECT_THAT(protocol.Commit(Agreed(0)).due, IsEmpty());
}

TEST(StepProtocol, SyncOnceIsDueWhateverSwitchAndScheduleSay) {
  SyncPolicy policy = Quiet();
  policy.broadcast_buffers = false;
  StepProtocol protocol = Protocol(policy);
  LOCKSTEP_ASSERT_OK(protocol.Learn(Once(1, {.root = RootWorker{"w2"}})));
  LOCKSTEP_ASSERT_OK(
      protocol.Learn(Once(2, {.buffers = false, .parameters = true, .root = RootRank{1}})));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Once(3, {.buffers = false})));  // asks for nothing
  EXPECT_THAT(protocol.Commit(Agreed(3)).due,
              ElementsAre(IsBufferSync(2), IsParameterTask(kBroadcast, 1)));
  EXPECT_THAT(protocol.Commit(Agreed(3)).due, IsEmpty());
}

TEST(StepProtocol, ARegroupEndsTheEpochAndEntriesBehindItStayPending) {
  StepProtocol protocol = Protocol(Quiet());
  LOCKSTEP_ASSERT_OK(protocol.Learn(Once(1, {})));
  LOCKSTEP_ASSERT_OK(protocol.Learn({LogNumber(2), Regroup{.drain = "w1"}}));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(3, EverySteps(1))));
  EXPECT_EQ(protocol.Commit(Agreed(1)).regroup, std::nullopt);
  const StepOutcome outcome = protocol.Commit(Agreed(3));
  EXPECT_EQ(outcome.regroup, Regroup{.drain = "w1"});
  EXPECT_THAT(outcome.applied,
              ElementsAre(AppliedEntry{.number = LogNumber(2), .step = 2}));
  EXPECT_EQ(protocol.applied(), LogNumber(2));
  EXPECT_EQ(protocol.revision(), Revision(1));
}

TEST(StepProtocol, ACheckpointOnceIsDueOnceBehindItsStep) {
  StepProtocol protocol = Protocol(Quiet());
  LOCKSTEP_ASSERT_OK(protocol.Learn({LogNumber(1), CheckpointOnce{}}));
  EXPECT_FALSE(protocol.Commit(Agreed(0)).checkpoint);
  const StepOutcome outcome = protocol.Commit(Agreed(1));
  EXPECT_TRUE(outcome.checkpoint);
  EXPECT_THAT(outcome.due, IsEmpty());
  EXPECT_FALSE(protocol.Commit(Agreed(1)).checkpoint);
}

TEST(StepProtocol, ARevisionGovernsTheStepsBehindTheOneItTookEffectAfter) {
  StepProtocol protocol = Protocol(EverySteps(1));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(1, Quiet())));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(2, EverySteps(1))));
  EXPECT_EQ(protocol.Commit(Agreed(1)).due.size(), 1u);  // still as step 1 began
  EXPECT_EQ(protocol.Commit(Agreed(2)).due.size(), 0u);
  EXPECT_EQ(protocol.Commit(Agreed(2)).due.size(), 1u);
}

TEST(StepProtocol, ARevisionDoesNotRestartTheCountOfForwards) {
  StepProtocol protocol = Protocol(Quiet());
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(1, EveryForwards(4))));
  std::vector<int> due;
  for (int forward = 1; forward <= 12; ++forward) {
    if (!protocol.BeforeForward().empty()) due.push_back(forward);
    protocol.Commit(Agreed(forward >= 3 ? 1 : 0));  // governs forward 4 on
  }
  EXPECT_THAT(due, ElementsAre(4, 8, 12));
}

TEST(StepProtocol, ATaskCarriesTheListsUnderWhichItBecameDue) {
  StepProtocol protocol = Protocol(AllowOnly("a"));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Once(1, {})));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(2, AllowOnly("b"))));
  LOCKSTEP_ASSERT_OK(protocol.Learn(Once(3, {})));
  const StepOutcome outcome = protocol.Commit(Agreed(3));
  ASSERT_EQ(outcome.due.size(), 2u);
  EXPECT_EQ(outcome.due[0].rules->Find("a").treatment, 0);
  EXPECT_EQ(outcome.due[0].rules->Find("b").treatment, -1);
  EXPECT_EQ(outcome.due[1].rules->Find("b").treatment, 0);
}

TEST(StepProtocol, AMissingRootFallsBackToRankZero) {
  for (const Root& root : {Root(RootWorker{"gone"}), Root(RootRank{3}), Root(LowestRank{})}) {
    SyncPolicy policy = EveryForwards(1);
    policy.root = root;
    StepProtocol protocol = Protocol(policy);
    EXPECT_THAT(protocol.BeforeForward(), ElementsAre(IsBufferSync(0)));
  }
  SyncPolicy policy = EveryForwards(1);
  policy.root = RootWorker{"w1"};
  StepProtocol protocol = Protocol(policy);
  EXPECT_THAT(protocol.BeforeForward(), ElementsAre(IsBufferSync(1)));
}

using Due = std::vector<std::optional<BufferSync>>;

// What a point in training brings for the buffers of each treatment.
Due BuffersOf(const std::vector<SyncTask>& tasks) {
  return tasks.empty() ? Due{} : tasks.back().buffers;
}

TEST(StepProtocol, EachRuleHasItsOwnOperationRootAndSchedule) {
  SyncPolicy policy = EveryForwards(1);
  policy.rules = {{.pattern = "a",
                   .operation = Operation::kMax,
                   .schedule = Schedule{.every_forwards = 0, .every_steps = 2}},
                  {.pattern = "b", .root = RootRank{2}},
                  {.pattern = "c",
                   .operation = Operation::kMin,
                   .schedule = Schedule{.every_forwards = 0, .before_evaluation = true}},
                  {.pattern = "d",
                   .operation = Operation::kSum,
                   .schedule = Schedule{.every_forwards = 0, .before_checkpoint = true}},
                  {.pattern = "e", .operation = Operation::kNone}};
  StepProtocol protocol = Protocol(policy);
  const auto none = std::nullopt;
  const BufferSync max = {.operation = Operation::kMax};
  const BufferSync min = {.operation = Operation::kMin};
  const BufferSync sum = {.operation = Operation::kSum};
  const BufferSync from0;
  const BufferSync from2 = {.root = 2};
  EXPECT_EQ(BuffersOf(protocol.BeforeForward()), (Due{none, from2, none, none, none, from0}));
  EXPECT_EQ(BuffersOf(protocol.Commit(Agreed(0)).due), Due{});
  EXPECT_EQ(BuffersOf(protocol.Commit(Agreed(0)).due), (Due{max, none, none, none, none, none}));
  EXPECT_EQ(BuffersOf(protocol.BeforeEvaluation()), (Due{none, none, min, none, none, none}));
  EXPECT_EQ(BuffersOf(protocol.BeforeCheckpoint()), (Due{none, none, none, sum, none, none}));
  EXPECT_EQ(BuffersOf(protocol.OnCommand({})), (Due{max, from2, min, sum, none, from0}));
}

TEST(StepProtocol, AStartAndACommandWithARootBroadcastWhateverTheOperation) {
  SyncPolicy policy = Quiet();
  policy.operation = Operation::kMean;
  policy.rules = {{.pattern = "a", .operation = Operation::kSum, .schedule = Schedule{}},
                  {.pattern = "b", .operation = Operation::kNone, .schedule = Schedule{}},
                  {.pattern = "c", .root = RootRank{1}, .schedule = Schedule{}}};
  StepProtocol protocol = Protocol(policy);
  const auto none = std::nullopt;
  const BufferSync from0;
  const BufferSync from1 = {.root = 1};
  EXPECT_EQ(BuffersOf(protocol.AtStart()), (Due{from0, none, from1, none}));
  EXPECT_EQ(BuffersOf(protocol.OnCommand({.root = RootRank{1}})),
            (Due{from1, none, from1, from1}));
}

Agreement AgreedSamples(const std::vector<std::int64_t>& samples) {
  return {.log_number = LogNumber(0), .samples = 1, .samples_by_rank = samples};
}

TEST(StepProtocol, AMeanBySamplesCountsThoseSinceTheRulesLastSync) {
  SyncPolicy policy = Quiet();
  policy.operation = Operation::kMeanBySamples;
  policy.rules = {{.pattern = "a", .schedule = Schedule{.every_forwards = 0, .every_steps = 2}}};
  StepProtocol protocol = Protocol(policy);
  const auto samples = [](const std::vector<SyncTask>& tasks, int treatment) {
    return tasks.at(0).buffers.at(treatment)->samples;
  };
  protocol.AtStart();
  protocol.Commit(AgreedSamples({4, 0, 2}));
  EXPECT_THAT(samples(protocol.Commit(AgreedSamples({4, 3, 0})).due, 0), ElementsAre(8, 3, 2));
  protocol.Commit(AgreedSamples({1, 1, 1}));
  EXPECT_THAT(samples(protocol.Commit(AgreedSamples({1, 0, 5})).due, 0), ElementsAre(2, 1, 6));
  // The policy's own treatment was not synchronised in between.
  const auto command = protocol.OnCommand({});
  EXPECT_THAT(samples(command, 1), ElementsAre(10, 4, 8));
  EXPECT_THAT(samples(command, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(samples(protocol.OnCommand({}), 1), ElementsAre(0, 0, 0));
}

TEST(StepProtocol, SamplesStopAtTheLargestNumber) {
  SyncPolicy policy = Quiet();
  policy.operation = Operation::kMeanBySamples;
  StepProtocol protocol = Protocol(policy);
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  protocol.Commit(AgreedSamples({kHuge, 1, 0}));
  protocol.Commit(AgreedSamples({kHuge, 1, 0}));
  protocol.Commit(AgreedSamples({kHuge, 1, 0}));
  EXPECT_THAT(protocol.OnCommand({})[0].buffers[0]->samples,
              ElementsAre(std::numeric_limits<std::int64_t>::max(), 3, 0));
}

TEST(StepProtocol, ARevisionBeginsToCountSamplesAnew) {
  SyncPolicy policy = Quiet();
  policy.operation = Operation::kMeanBySamples;
  StepProtocol protocol = Protocol(policy);
  LOCKSTEP_ASSERT_OK(protocol.Learn(Revise(1, policy)));
  protocol.Commit(AgreedSamples({5, 5, 5}));
  Agreement agreement = AgreedSamples({1, 2, 3});
  agreement.log_number = LogNumber(1);
  protocol.Commit(agreement);
  protocol.Commit(AgreedSamples({7, 8, 9}));
  EXPECT_THAT(protocol.OnCommand({})[0].buffers[0]->samples, ElementsAre(7, 8, 9));
}

TEST(StepProtocol, ParametersHaveTheirOwnScheduleBesideTheMasterSwitch) {
  SyncPolicy policy = Quiet();
  policy.broadcast_buffers = false;
  policy.root = RootRank{1};
  policy.broadcast_parameters_every_steps = 2;
  policy.check_parameters_every_steps = 3;
  StepProtocol protocol = Protocol(policy);
  EXPECT_THAT(protocol.Commit(Agreed(0)).due, IsEmpty());
  EXPECT_THAT(protocol.Commit(Agreed(0)).due, ElementsAre(IsParameterTask(kBroadcast, 1)));
  EXPECT_THAT(protocol.Commit(Agreed(0)).due, ElementsAre(IsParameterTask(kCheck, 1)));
  protocol.Commit(Agreed(0));
  protocol.Commit(Agreed(0));
  EXPECT_THAT(protocol.Commit(Agreed(0)).due,
              ElementsAre(IsParameterTask(kBroadcast, 1), IsParameterTask(kCheck, 1)));
}

TEST(StepProtocol, ACommandWithoutARootTakesParametersFromThePolicysRoot) {
  SyncPolicy policy = Quiet();
  policy.root = RootRank{2};
  StepProtocol protocol = Protocol(policy);
  EXPECT_THAT(protocol.OnCommand({.buffers = false, .parameters = true}),
              ElementsAre(IsParameterTask(kBroadcast, 2)));
}

}  // namespace
}  // namespace lockstep
