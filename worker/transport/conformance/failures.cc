#include "worker/transport/conformance/conformance.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// How long after its deadline a wait may end on a busy host, by transports that
// ask around who is missing.
constexpr absl::Duration kGrace = absl::Seconds(5);

// Closed until a number of threads have passed by.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mu_);
    ++passed_;
    changed_.SignalAll();
  }
  void Await(int count) {
    MutexLock lock(&mu_);
    EXPECT_TRUE(changed_.AwaitFor(&mu_, absl::Seconds(60), [&] { return passed_ >= count; }));
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int passed_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_P(TransportConformance, AMissingRankIsNamedWithinTheDeadline) {
  if (world_size() < 2) GTEST_SKIP();
  const int missing = world_size() - 1;
  const absl::Duration deadline = absl::Milliseconds(400);
  // The missing rank is there until the others are through, and does nothing.
  Gate through;
  std::vector<absl::Duration> took(world_size());
  const std::vector<absl::Status> statuses = Gather(
      [&](int rank, Transport& transport) {
        if (rank == missing) {
          through.Await(world_size() - 1);
          return absl::OkStatus();
        }
        Tensors tensors = OneOfEachDType(rank);
        const absl::Time start = absl::Now();
        const absl::Status status = transport.Broadcast(tensors.views(), 0);
        took[rank] = absl::Now() - start;
        EXPECT_EQ(tensors.bytes(), OneOfEachDType(rank).bytes());
        EXPECT_THAT(transport.Agree({}), StatusIs(absl::StatusCode::kAborted));
        through.Pass();
        return status;
      },
      deadline);
  for (int r = 0; r < missing; ++r) {
    EXPECT_THAT(statuses[r],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr(absl::StrCat("w", missing, " (rank ", missing, ")"))));
    EXPECT_LT(took[r], deadline + kGrace);
  }
}

TEST_P(TransportConformance, AbortFromAnotherThreadFreesTheWaiter) {
  if (world_size() < 2) GTEST_SKIP();
  const int waiting = world_size() - 1;
  Gate freed;
  const absl::Time start = absl::Now();
  RunRanks([&](int rank, Transport& transport) {
    if (rank != waiting) {
      freed.Await(1);
      return;
    }
    std::thread aborter([&] {
      // Most likely while the other waits; either order must free it.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      transport.Abort(absl::UnavailableError("the epoch ended"));
      transport.Abort(absl::InternalError("again"));
    });
    EXPECT_THAT(transport.Agree({}),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended")));
    aborter.join();
    Tensors tensors = OneOfEachDType(rank);
    EXPECT_THAT(transport.Broadcast(tensors.views(), 0),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended")));
    freed.Pass();
  });
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_P(TransportConformance, AfterAnErrorEveryLaterCallFails) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 64));
    const std::vector<Shard> shards = EvenShards(64, world_size());
    Tensors tensors;
    tensors.Add("phase", DType::kComplex64, {6}, rank);
    ASSERT_THAT(transport.AllReduce(tensors.views(), ReduceOp::kMin),
                StatusIs(absl::StatusCode::kInvalidArgument));
    const auto dead = StatusIs(absl::StatusCode::kAborted, HasSubstr("phase"));
    EXPECT_THAT(transport.Broadcast(tensors.views(), 0), dead);
    EXPECT_THAT(transport.AllReduce(tensors.views(), ReduceOp::kSum), dead);
    EXPECT_THAT(transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 1), dead);
    EXPECT_THAT(transport.ReduceToOwners(arena, shards, EqualWeights(world_size()), Ignore), dead);
    EXPECT_THAT(transport.BroadcastFromOwners(arena, shards), dead);
    EXPECT_THAT(transport.UpdateShards(arena, arena, shards, EqualWeights(world_size()), Ignore),
                dead);
    EXPECT_THAT(transport.Agree({}), dead);
  });
}

}  // namespace
}  // namespace lockstep
