// Gradients that travel while backward makes others: what is Gloo's own way.
#include <barrier>
#include <latch>
#include <memory>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/overlap.h"
#include "worker/transport/gloo/gloo_transport.h"

namespace lockstep {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class GlooOverlap : public TransportOverlap {};

const ConformanceCase kCase = {.make_factory = [] {
  return std::make_shared<GlooFactory>(GlooOptions{.bucket_bytes = kMinBucketBytes});
}};

INSTANTIATE_TEST_SUITE_P(Gloo, TransportOverlap, AllWorldSizes(kCase), ConformanceCaseName);
INSTANTIATE_TEST_SUITE_P(Gloo, GlooOverlap, AllWorldSizes(kCase), ConformanceCaseName);

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

TEST_P(GlooOverlap, ATransportThatGoesWhileItWaitsForItselfTellsPeers) {
  if (world_size() < 2) GTEST_SKIP();
  std::barrier others(world_size() - 1);
  RunRanks(
      [&](int rank, Transport& transport) {
        const Gradients gradients = Allocate(transport);
        LOCKSTEP_ASSERT_OK(Begin(transport, gradients));
        if (rank == 1) {
          EXPECT_TRUE(Eventually([&] {
            return transport.traffic().received_bytes == kMinBucketBytes * (world_size() - 1);
          }));
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

}  // namespace
}  // namespace lockstep
