// Gradients that travel while backward makes others.
#include <algorithm>
#include <barrier>
#include <latch>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/gloo/ready_ranges.h"

namespace lockstep {

// It is instantiated in gloo_test.cc.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// Several buckets in each shard, and equal shards for 1 to 4 ranks.
constexpr std::int64_t kElements = 12 * 130'000;

TEST(ReadyRanges, CoverWhatWasAddedInAnyOrder) {
  constexpr int kEnd = 40;
  for (int seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    gloo_links::ReadyRanges ranges;
    std::vector<bool> naive(kEnd);
    for (int i = 0; i < 15; ++i) {
      const std::int64_t begin = prng.Between(0, kEnd);
      const std::int64_t end = prng.Between(begin, std::min<std::int64_t>(begin + 8, kEnd));
      ranges.Add(begin, end);
      std::fill(naive.begin() + begin, naive.begin() + end, true);
      for (int from = 0; from <= kEnd; ++from) {
        for (int to = from; to <= kEnd; ++to) {
          ASSERT_EQ(ranges.Covers(from, to),
                    std::all_of(naive.begin() + from, naive.begin() + to, [](bool b) { return b; }))
              << "seed " << seed << ", [" << from << ", " << to << ")";
        }
      }
    }
  }
}

class GlooOverlap : public TransportConformance {
 protected:
  // An arena of ones, and its shards.
  struct Gradients {
    Arena arena;
    std::vector<Shard> shards;
  };
  Gradients Allocate(Transport& transport) {
    auto arena = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements);
    EXPECT_THAT(arena, IsOk());
    std::ranges::fill(arena->floats(), 1.0f);
    return {*arena, EvenShards(kElements, world_size())};
  }
  absl::Status Begin(Transport& transport, const Gradients& gradients, float weight = 1) {
    const ArenaShards part = {gradients.arena, gradients.shards};
    return transport.BeginReduction({&part, 1}, weight);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Gloo, GlooOverlap,
    AllWorldSizes({.make_factory = [] {
      return std::make_shared<GlooFactory>(GlooOptions{.bucket_bytes = kMinBucketBytes});
    }}),
    ConformanceCaseName);

// Until `condition`, or for long.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (!condition()) {
    if (absl::Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_P(GlooOverlap, WhatIsReadyTravelsBeforeAnyCollectiveCall) {
  std::barrier halfway(world_size());
  RunRanks([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    const std::int64_t shard_bytes = gradients.arena.bytes() / world_size();
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

TEST_P(GlooOverlap, ARankThatWaitsForALatePeerSendsWhatGetsReadyMeanwhile) {
  if (world_size() != 2) GTEST_SKIP();
  std::barrier both(2);
  RunRanks([&](int rank, Transport& transport) {
    const Gradients gradients = Allocate(transport);
    const Shard& last = gradients.shards[1];
    const std::int64_t slice = kMinBucketBytes / 4;
    LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
    // Rank 1 sends nothing until it has all of the first rank's.
    for (const std::int64_t begin : {last.end - slice, last.begin}) {
      if (rank == 0) transport.GradientsReady(gradients.arena, begin, last.end);
      if (rank == 1) {
        transport.GradientsReady(gradients.arena, last.begin, last.end);
        EXPECT_TRUE(Eventually(
            [&] { return transport.traffic().received_bytes == 4 * (last.end - begin); }));
      }
      both.arrive_and_wait();
    }
    transport.GradientsReady(gradients.arena, 0, kElements);
    LOCKSTEP_ASSERT_OK(transport.Agree({}));
  });
}

TEST_P(GlooOverlap, TwoBeginningsInOneStepAreAnError) {
  std::barrier both(world_size());
  RunRanks([&](int rank, Transport& transport) {
    if (world_size() == 1) return;
    const Gradients gradients = Allocate(transport);
    LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
    both.arrive_and_wait();
    EXPECT_THAT(Begin(transport, gradients),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("neither used up")));
  });
}

TEST_P(GlooOverlap, GradientsThatAreNotReadyAreAnErrorOfTheNextCallAndPeersAreTold) {
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

TEST_P(GlooOverlap, RanksThatDidNotBeginAreNamedOnEveryRank) {
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

TEST_P(GlooOverlap, BeginningsOfOtherShardsAreNamedOnEveryRank) {
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

TEST_P(GlooOverlap, EndingWithOtherWeightsIsAnErrorOnEveryRank) {
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
TEST_P(GlooOverlap, ARankThatIsNeverReadyIsNamedAtTheDeadline) {
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

// One is in backward, its communication thread waits for another that has not begun.
TEST_P(GlooOverlap, RanksThatAreLateAreNamedWhateverTheyAreAt) {
  if (world_size() < 3) GTEST_SKIP();
  std::latch others(world_size() - 2);
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        if (rank == 2) return others.wait();
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        if (rank == 1) return others.wait();
        transport.GradientsReady(gradients.arena, 0, kElements);
        EXPECT_THAT(transport.Agree({}),
                    StatusIs(absl::StatusCode::kDeadlineExceeded,
                             HasSubstr("w1 (rank 1), w2 (rank 2) did not come in time")));
        others.arrive_and_wait();
      },
      absl::Seconds(1));
}

// No deadline runs while a rank itself is in backward.
TEST_P(GlooOverlap, ABackwardMayTakeLongerThanTheDeadline) {
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

TEST_P(GlooOverlap, AnAbortInTheMiddleEndsItHereAndOnPeersAtOnce) {
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

TEST_P(GlooOverlap, AnAbortEndsTheWaitForAPeerThatIsInBackward) {
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

TEST_P(GlooOverlap, ATransportThatGoesInTheMiddleTellsPeers) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  for (const bool some_ready : {false, true}) {
    std::barrier others(world_size() - 1);
    RunRanks(
        [&](int rank, Transport& transport) {
          const Gradients gradients = Allocate(transport);
          LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
          if (rank == 1) {
            if (some_ready) {
              transport.GradientsReady(gradients.arena, 10, kElements);
            } else {
              // What it waits for then is itself.
              EXPECT_TRUE(Eventually([&] {
                return transport.traffic().received_bytes == kMinBucketBytes * (world_size() - 1);
              }));
            }
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
