#include "worker/transport/conformance/overlap.h"

#include <barrier>
#include <latch>
#include <string>
#include <thread>

#include "gmock/gmock.h"

namespace lockstep {

// It is instantiated elsewhere.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

TEST_P(TransportOverlap, WhatIsReadyTravelsBeforeAnyCollectiveCall) {
  std::barrier halfway(world_size());
  RunRanks([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    const std::int64_t shard_bytes = 4 * gradients.shards[rank].elements();
    const std::int64_t before = transport.traffic().received_bytes;
    LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
    // The last shard goes to its owner while there is none of the others yet.
    transport.GradientsReady(gradients.arena, gradients.shards.back().begin, kElements);
    const bool is_last = rank == world_size() - 1;
    EXPECT_TRUE(Eventually([&] {
      return transport.traffic().received_bytes - before ==
             (is_last ? shard_bytes * (world_size() - 1) : 0);
    }));
    halfway.arrive_and_wait();
    transport.GradientsReady(gradients.arena, 0, gradients.shards.back().begin);
    EXPECT_TRUE(Eventually([&] {
      return transport.traffic().received_bytes - before == shard_bytes * (world_size() - 1);
    }));
    LOCKSTEP_ASSERT_OK(transport.Agree({}));
    LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(gradients.arena, gradients.shards,
                                                EqualWeights(world_size()), Ignore));
    EXPECT_EQ(transport.traffic().received_bytes - before, shard_bytes * (world_size() - 1));
  });
}

TEST_P(TransportOverlap, TwoBeginningsInOneStepAreAnError) {
  if (world_size() == 1) GTEST_SKIP();
  std::barrier both(world_size());
  const std::vector<absl::Status> statuses = Gather([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    LOCKSTEP_EXPECT_OK(Begin(transport, gradients));
    both.arrive_and_wait();
    return Begin(transport, gradients);
  });
  // A rank may hear of another's before its own.
  EXPECT_THAT(statuses, Each(AnyOf(StatusIs(absl::StatusCode::kFailedPrecondition,
                                            HasSubstr("neither used up")),
                                   StatusIs(absl::StatusCode::kAborted))));
  EXPECT_THAT(statuses, Contains(StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST_P(TransportOverlap, GradientsThatAreNotReadyAreAnErrorOfTheNextCallAndPeersAreTold) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  std::barrier through(world_size());
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        transport.GradientsReady(gradients.arena, rank == 1 ? 1 : 0, kElements);
        EXPECT_THAT(transport.Agree({}),
                    StatusIs(rank == 1 ? absl::StatusCode::kFailedPrecondition
                                       : absl::StatusCode::kAborted,
                             HasSubstr("not all gradients of arena 0 are ready")));
        // One that goes earlier may be seen to be gone before the news comes.
        through.arrive_and_wait();
      },
      absl::Seconds(60));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_P(TransportOverlap, RanksThatDidNotBeginAreNamedOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  RunRanks([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    if (rank == 1) {
      LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
      transport.GradientsReady(gradients.arena, 0, kElements);
    }
    EXPECT_THAT(transport.Agree({}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("agree on w0 (rank 0)"),
                               HasSubstr("beginning of a reduction on w1 (rank 1)"))));
  });
}

TEST_P(TransportOverlap, BeginningsOfOtherShardsAreNamedOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  RunRanks([&](int rank, Transport& transport) {
    Gradients gradients = Allocate(transport);
    if (rank == 1) ++gradients.shards[0].begin;
    LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
    transport.GradientsReady(gradients.arena, 0, kElements);
    EXPECT_THAT(transport.Agree({}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("'shard 0': [0, "), HasSubstr("[1, "))));
  });
}

TEST_P(TransportOverlap, EndingWithOtherWeightsIsAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  RunRanks([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    LOCKSTEP_ASSERT_OK(Begin(transport, gradients, 2));
    transport.GradientsReady(gradients.arena, 0, kElements);
    EXPECT_THAT(transport.ReduceToOwners(
                    gradients.arena, gradients.shards, EqualWeights(world_size()),
                    [](std::int64_t, std::span<const float>) { ADD_FAILURE(); }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other shards or weights")));
  });
}

// Rank 1 is in backward for longer than the others wait; its communication thread is
// there all the time.
TEST_P(TransportOverlap, ARankThatIsNeverReadyIsNamedAtTheDeadline) {
  if (world_size() < 2) GTEST_SKIP();
  for (const bool begins : {true, false}) {
    std::latch others(world_size() - 1);
    RunRanks(
        [&](int rank, Transport& transport) {
          const Gradients gradients = Allocate(transport);
          if (rank == 1) {
            if (begins) {
              LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
            }
            others.wait();
            transport.GradientsReady(gradients.arena, 0, kElements);
            EXPECT_THAT(transport.Agree({}), Not(IsOk()));
            return;
          }
          LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
          transport.GradientsReady(gradients.arena, 0, kElements);
          const absl::Status status = transport.Agree({}).status();
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                       HasSubstr("w1 (rank 1) did not come in time")));
          for (const char* present : {"w0 (rank", "w2 (rank", "w3 (rank"}) {
            EXPECT_THAT(std::string(status.message()), Not(HasSubstr(present)));
          }
          others.arrive_and_wait();  // nobody goes before all have asked who is there
        },
        absl::Seconds(1));
  }
}

// No deadline runs while a rank itself is in backward.
TEST_P(TransportOverlap, ABackwardMayTakeLongerThanTheDeadline) {
  constexpr absl::Duration kDeadline = absl::Milliseconds(500);
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        // Some of it, so that peers are waited for.
        transport.GradientsReady(gradients.arena, kElements / 2, kElements);
        const absl::Time end = absl::Now() + 3 * kDeadline;
        EXPECT_TRUE(Eventually([&] { return absl::Now() > end; }));
        transport.GradientsReady(gradients.arena, 0, kElements / 2);
        LOCKSTEP_ASSERT_OK(transport.Agree({}));
      },
      kDeadline);
}

TEST_P(TransportOverlap, AnAbortInTheMiddleEndsItHereAndOnPeersAtOnce) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        if (rank == 1) {
          transport.GradientsReady(gradients.arena, kElements / 2, kElements);
          std::thread([&] { transport.Abort(absl::CancelledError("the worker is draining")); })
              .join();
        }
        transport.GradientsReady(gradients.arena, 0, kElements);
        EXPECT_THAT(transport.Agree({}),
                    StatusIs(absl::StatusCode::kAborted,
                             AllOf(HasSubstr("w1 (rank 1) aborted epoch 3"),
                                   HasSubstr("the worker is draining"))));
      },
      absl::Seconds(60));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_P(TransportOverlap, AnAbortEndsTheWaitForAPeerThatIsInBackward) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  std::latch others(world_size() - 1);
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        if (rank == 1) return others.wait();
        transport.GradientsReady(gradients.arena, 0, kElements);
        std::thread aborter([&] { transport.Abort(absl::CancelledError("the epoch ended")); });
        EXPECT_THAT(transport.Agree({}), StatusIs(absl::StatusCode::kAborted));
        aborter.join();
        others.count_down();
      },
      absl::Seconds(60));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_P(TransportOverlap, ATransportThatGoesInTheMiddleTellsPeers) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  for (const bool some_ready : {false, true}) {
    std::barrier others(world_size() - 1);
    RunRanks(
        [&](int rank, Transport& transport) {
          const Gradients gradients = Allocate(transport);
          LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
          if (rank == 1) {
            if (some_ready) transport.GradientsReady(gradients.arena, 10, kElements);
            return;
          }
          transport.GradientsReady(gradients.arena, 0, kElements);
          EXPECT_THAT(transport.Agree({}),
                      AnyOf(StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 (rank 1)")),
                            StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w1 (rank 1)"))));
          others.arrive_and_wait();
        },
        absl::Seconds(60));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

}  // namespace
}  // namespace lockstep
