// The property the product is named for: however late or early each rank hears
// of a decision, all ranks switch at the same step. And that this test can see
// ranks that do not.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/engine/forwarding_transport.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {
namespace {

constexpr int kRanks = 4;
constexpr int kChanges = 1000;
constexpr int kMaxSteps = 20'000;

// The n-th revision of the policy: schedules, lists and roots vary, so that a
// rank under another revision would call other collectives.
SyncPolicy PolicyOf(int n) {
  Prng prng(n);
  SyncPolicy policy;
  policy.broadcast_buffers = prng.Below(4) != 0;
  if (prng.Below(2) == 0) policy.ignore_list = {"bn.running_mean"};
  policy.root = RootRank{prng.Between(0, kRanks)};  // the last is no rank
  policy.schedule.every_forwards = prng.Between(0, 2);
  policy.schedule.every_steps = prng.Between(0, 2);
  return policy;
}

// What came of a run, by rank.
struct Trace {
  std::vector<std::vector<Revision>> revision_of_step;
  std::vector<std::vector<AppliedEntry>> applied;
  std::vector<absl::Status> status;
};

// Trains until each rank has applied all changes. In each step a rank hears of some
// of the changes behind those it knows: of none in about half of the steps.
Trace TrainThroughChanges(std::uint64_t seed, const WrappingFactory::Wrap& wrap) {
  ThreadedWorld world(kRanks);
  world.operation_timeout = absl::Seconds(20);
  std::vector<std::unique_ptr<Prng>> prngs;
  for (int rank = 0; rank < kRanks; ++rank) {
    world.model(rank).AddParameter("w", std::vector<float>(100, 1));
    world.model(rank).AddBuffer<float>("bn.running_mean", {1, 2});
    world.model(rank).AddBuffer<std::int64_t>("bn.num_batches_tracked", {rank});
    for (int n = 1; n <= kChanges; ++n) {
      world.link(rank).Append(
          {LogNumber(n), PolicyRevised{Revision(n + 1), PolicyOf(n)}});
    }
    prngs.push_back(std::make_unique<Prng>(seed * kRanks + rank));
    world.link(rank).SetPace([prng = prngs.back().get()] {
      return prng->Below(2) == 0 ? 0 : prng->Between(1, 4);
    });
  }
  world.Propose(PolicyOf(0));
  WrappingFactory transports(world.transports(), wrap);

  Trace trace = {.revision_of_step = std::vector<std::vector<Revision>>(kRanks),
                 .applied = std::vector<std::vector<AppliedEntry>>(kRanks),
                 .status = std::vector<absl::Status>(kRanks)};
  world.Run([&](int rank) {
    absl::Status& status = trace.status[rank];
    status = world.Join(rank, Sgd{}, &transports);
    if (!status.ok()) return;
    Engine& engine = world.engine(rank);
    while (status.ok() && engine.revision() != Revision(kChanges + 1) &&
           engine.step() < kMaxSteps) {
      status = engine.BeforeForward();
      if (status.ok()) status = engine.Step({});
      if (status.ok()) trace.revision_of_step[rank].push_back(engine.revision());
    }
    trace.applied[rank] = engine.applied();
    engine.Leave(absl::OkStatus());
  });
  return trace;
}

// The agreement taken out: each rank goes by the log number it knows itself.
class DisagreeingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override {
    absl::StatusOr<Agreement> agreement = ForwardingTransport::Agree(mine);
    if (agreement.ok()) agreement->log_number = LogNumber(mine.log_number);
    return agreement;
  }
};

bool AllRanksRanUnderTheSameRevisions(const Trace& trace) {
  for (int rank = 1; rank < kRanks; ++rank) {
    if (trace.revision_of_step[rank] != trace.revision_of_step[0]) return false;
  }
  return true;
}

TEST(Lockstep, AllRanksSwitchAtTheSameStepThroughAThousandChanges) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = TrainThroughChanges(seed, [](auto transport) { return transport; });
    for (int rank = 0; rank < kRanks; ++rank) {
      LOCKSTEP_EXPECT_OK(trace.status[rank]);
      ASSERT_EQ(trace.applied[rank].size(), std::size_t{kChanges}) << rank;
      for (int n = 0; n < kChanges; ++n) {
        ASSERT_EQ(trace.applied[rank][n].number, LogNumber(n + 1)) << rank;
        ASSERT_EQ(trace.applied[rank][n].step, trace.applied[0][n].step) << rank;
      }
    }
    EXPECT_TRUE(AllRanksRanUnderTheSameRevisions(trace));
    // A run in which the changes came in one piece would show nothing.
    EXPECT_GT(trace.revision_of_step[0].size(), std::size_t{kChanges / 4});
  }
}

TEST(Lockstep, WithoutTheAgreementRanksDivergeAndTheTestSeesIt) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Trace trace = TrainThroughChanges(seed, [](auto transport) {
      return std::make_unique<DisagreeingTransport>(std::move(transport));
    });
    EXPECT_FALSE(AllRanksRanUnderTheSameRevisions(trace)) << seed;
  }
}

}  // namespace
}  // namespace lockstep
