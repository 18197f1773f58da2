#include "worker/transport/gloo/gloo_transport.h"

#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Several buckets in each shard, and equal shards for 1 to 4 ranks.
constexpr std::int64_t kElements = 12 * 260'000;

TrafficCounters operator-(const TrafficCounters& a, const TrafficCounters& b) {
  return {a.sent_bytes - b.sent_bytes, a.received_bytes - b.received_bytes};
}

TrafficCounters BothWays(std::int64_t bytes) { return {bytes, bytes}; }

INSTANTIATE_TEST_SUITE_P(
    Gloo, TransportConformance,
    AllWorldSizes({.make_factory = [] { return std::make_shared<GlooFactory>(GlooOptions{}); }}),
    ConformanceCaseName);

TEST_P(TransportConformance, AStepSendsAndReceivesTwiceTheParametersOfTheOtherRanksAndNoMore) {
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    RunRanks([&](int rank, Transport& transport) {
      const int n = world_size();
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena gradients, transport.Allocate(ArenaUse::kGradients, dtype, kElements));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena parameters, transport.Allocate(ArenaUse::kParameters, dtype, kElements));
      std::vector<Shard> shards;
      for (int r = 0; r < n; ++r) shards.push_back({kElements / n * r, kElements / n * (r + 1)});
      EXPECT_EQ(transport.traffic(), BothWays(0));
      TrafficCounters before = transport.traffic();
      LOCKSTEP_ASSERT_OK(
          transport.UpdateShards(gradients, parameters, shards, EqualWeights(n), Ignore));
      EXPECT_EQ(transport.traffic() - before, BothWays(2 * gradients.bytes() * (n - 1) / n));
      before = transport.traffic();
      LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(gradients, shards, EqualWeights(n), Ignore));
      EXPECT_EQ(transport.traffic() - before, BothWays(gradients.bytes() * (n - 1) / n));
      before = transport.traffic();
      LOCKSTEP_ASSERT_OK(transport.BroadcastFromOwners(parameters, shards));
      EXPECT_EQ(transport.traffic() - before, BothWays(parameters.bytes() * (n - 1) / n));
    });
  }
}

TEST_P(TransportConformance, AllReduceOfALargeTensorSendsAsFewBytesAsCanDo) {
  RunRanks([&](int rank, Transport& transport) {
    const int n = world_size();
    Tensors tensors;
    tensors.Add("large", DType::kInt32, {kElements}, 1);
    LOCKSTEP_ASSERT_OK(transport.AllReduce(tensors.views(), ReduceOp::kSum));
    // Parts are whole lines of 16 bytes, so that ranks differ by one for each message.
    const std::int64_t bytes = 2 * kElements * 4 * (n - 1) / n;
    constexpr std::int64_t kSlack = 1000;
    EXPECT_NEAR(transport.traffic().sent_bytes, bytes, kSlack);
    EXPECT_NEAR(transport.traffic().received_bytes, bytes, kSlack);
  });
}

TEST_P(TransportConformance, ALargeBroadcastPassesEachLinkOnce) {
  RunRanks([&](int rank, Transport& transport) {
    const int n = world_size();
    const int root = n - 1;
    Tensors tensors;
    tensors.Add("large", DType::kUint8, {kLarge}, rank);
    LOCKSTEP_ASSERT_OK(transport.Broadcast(tensors.views(), root));
    const bool last = (rank + 1) % n == root;
    EXPECT_EQ(transport.traffic().sent_bytes, last ? 0 : kLarge);
    EXPECT_EQ(transport.traffic().received_bytes, rank == root ? 0 : kLarge);
  });
}

TEST_P(TransportConformance, ParametersMayBeOfAnotherTypeThanGradients) {
  for (const auto& [of_gradients, of_parameters] :
       {std::pair(DType::kBfloat16, DType::kFloat32), std::pair(DType::kFloat32, DType::kFloat16)}) {
    RunRanks([&, of_gradients = of_gradients, of_parameters = of_parameters](
                 int rank, Transport& transport) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena gradients, transport.Allocate(ArenaUse::kGradients, of_gradients, kElements));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Arena parameters,
          transport.Allocate(ArenaUse::kParameters, of_parameters, kElements));
      for (std::int64_t i = 0; i < kElements; ++i) {
        Store(gradients, i, static_cast<float>(i % 100));
      }
      const std::vector<Shard> shards = EvenShards(kElements, world_size());
      LOCKSTEP_ASSERT_OK(transport.UpdateShards(
          gradients, parameters, shards, EqualWeights(world_size()),
          [&](std::int64_t begin, std::span<const float> sums) {
            for (std::size_t i = 0; i < sums.size(); ++i) {
              Store(parameters, shards[rank].begin + begin + static_cast<std::int64_t>(i), sums[i]);
            }
          }));
      const std::vector<float> values = ValuesOf(parameters);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < kElements; ++i) {
        if (values[i] != static_cast<float>(i % 100 * world_size())) ++wrong;
      }
      EXPECT_EQ(wrong, 0);
    });
  }
}

// Without the watch, Gloo's deadline and the coordinator's word, peers would wait on.
TEST_P(TransportConformance, PeersLearnOfAnAbortAndItsReasonAtOnce) {
  if (world_size() < 2) GTEST_SKIP();
  const absl::Time start = absl::Now();
  RunRanks(
      [&](int rank, Transport& transport) {
        if (rank == 1) {
          transport.Abort(absl::CancelledError("the worker is draining"));
          return;
        }
        EXPECT_THAT(transport.Agree({}),
                    StatusIs(absl::StatusCode::kAborted,
                             AllOf(HasSubstr("w1 (rank 1) aborted epoch 3"),
                                   HasSubstr("the worker is draining"))));
      },
      absl::Seconds(60));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

// The statuses of Create() by rank, each rank with options of its own.
std::vector<absl::Status> Form(const std::vector<GlooOptions>& options) {
  const int world_size = static_cast<int>(options.size());
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  std::vector<absl::Status> statuses(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      GlooFactory factory(options[rank]);
      statuses[rank] =
          factory
              .Create({.epoch = Epoch(1), .rank = rank, .members = MemberNames(world_size)},
                      [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
                        if (mine.has_value()) promise.set_value(*mine);
                        return endpoint.get();
                      })
              .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(GlooFactory, DifferentBucketsAreAnErrorOnEveryRankThatNamesThem) {
  EXPECT_THAT(Form({{.bucket_bytes = 1 << 20}, {.bucket_bytes = 2 << 20}, {.bucket_bytes = 1 << 20}}),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("1048576 on w0 (rank 0)"),
                                  HasSubstr("2097152 on w1 (rank 1)")))));
}

TEST(GlooFactory, RefusesBucketsOutOfBounds) {
  for (const std::int64_t bytes : {0l, (1l << 20) - 16, (1l << 20) + 8, (32l << 20) + 16}) {
    GlooFactory factory({.bucket_bytes = bytes});
    EXPECT_THAT(factory.Create({.epoch = Epoch(1), .rank = 0, .members = {"w0"}},
                               [](const std::optional<std::string>& mine)
                                   -> absl::StatusOr<std::string> { return *mine; }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(bytes))));
  }
}

TEST(GlooFactory, RefusesAnInterfaceThatIsNotThere) {
  GlooFactory factory({.interface = "nowhere0"});
  EXPECT_THAT(factory.Create({.epoch = Epoch(1), .rank = 0, .members = {"w0"}},
                             [](const std::optional<std::string>& mine)
                                 -> absl::StatusOr<std::string> { return *mine; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("nowhere0")));
}

TEST(GlooFactory, RefusesAnEndpointThatIsNoAddress) {
  GlooFactory factory({});
  for (const std::string endpoint : {"", "12 4 99", "127.0.0.1:0", "127.0.0.1:x", "a:b:c"}) {
    EXPECT_THAT(factory.Create({.epoch = Epoch(1), .rank = 1, .members = {"w0", "w1"}},
                               [&](const std::optional<std::string>&)
                                   -> absl::StatusOr<std::string> { return endpoint; }),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace lockstep
