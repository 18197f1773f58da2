// Gradients that travel while backward makes others: what is NCCL's own way.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/forwarding_math.h"
#include "worker/device/host_math.h"
#include "worker/transport/conformance/overlap.h"
#include "worker/transport/nccl/fake/test_rank.h"
#include "worker/transport/nccl/fake_gpus.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const ConformanceCase kCase = {.make_factory = [] { return std::make_shared<FakeGpus>(); }};

INSTANTIATE_TEST_SUITE_P(Nccl, TransportOverlap, AllWorldSizes(kCase), ConformanceCaseName);
INSTANTIATE_TEST_SUITE_P(NcclOnOneHost, TransportOverlap,
                         testing::Values(ConformanceCase{.make_factory = kCase.make_factory,
                                                         .world_size = 8}),
                         ConformanceCaseName);

// Counts sums, in any thread.
class SumsOf final : public ForwardingMath {
 public:
  explicit SumsOf(std::atomic<std::int64_t>* elements)
      : ForwardingMath(std::make_unique<HostMath>()), elements_(*elements) {}

  absl::Status WeightedSum(DType dtype, std::span<const std::byte* const> sources,
                           std::span<const float> weights, std::int64_t elements,
                           float* sums) override {
    const absl::Status status =
        ForwardingMath::WeightedSum(dtype, sources, weights, elements, sums);
    elements_ += elements;
    return status;
  }

 private:
  std::atomic<std::int64_t>& elements_;
};

// For two ranks: two slices of each shard.
constexpr std::int64_t kElements = 4 * kTestPieceBytes / 4;
const std::vector<Shard> kShards = {{0, kElements / 2}, {kElements / 2, kElements}};

absl::StatusOr<Arena> BeginWithOnes(Transport& transport) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena,
                            transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements));
  std::ranges::fill(arena.floats(), 1.0f);
  const ArenaShards part = {arena, kShards};
  LOCKSTEP_RETURN_IF_ERROR(transport.BeginReduction({&part, 1}, 1));
  return arena;
}

// Uses the sums that were begun, which must be right.
absl::Status EndIt(Transport& transport, const Arena& arena, float expected = 2) {
  return transport.ReduceToOwners(arena, kShards, EqualWeights(2),
                                  [&](std::int64_t, std::span<const float> sums) {
                                    EXPECT_TRUE(AllAre<float>(sums, expected));
                                  });
}

TEST(NcclOverlap, SumsAreMadeSliceBySliceBeforeAnyCollectiveCall) {
  std::atomic<std::int64_t> summed[2] = {0, 0};
  FakeGpus gpus([&](int rank, NcclOptions& options) {
    options.math = std::make_shared<SumsOf>(&summed[rank]);
  });
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena, BeginWithOnes(transport));
    // From the end, as backward does it.
    for (std::int64_t slices = 1; slices <= 4; ++slices) {
      const std::int64_t begin = kElements - slices * kElements / 4;
      transport.GradientsReady(arena, begin, begin + kElements / 4);
      EXPECT_TRUE(fake_nccl::Eventually([&] {
        return summed[0] + summed[1] >= slices * kElements / 4 &&
               summed[1] >= std::min<std::int64_t>(slices, 2) * kElements / 4;
      }));
    }
    LOCKSTEP_RETURN_IF_ERROR(transport.Agree({}).status());
    EXPECT_EQ(summed[rank], kElements / 2);
    LOCKSTEP_RETURN_IF_ERROR(EndIt(transport, arena));
    EXPECT_EQ(summed[rank], kElements / 2);
    return absl::OkStatus();
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body), Each(IsOk()));
}

TEST(NcclOverlap, SlicesOfSeveralOwnersThatAreDueGoInOneRound) {
  FakeGpus gpus;
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena, BeginWithOnes(transport));
    const int groups = gpus.fake().CallsOf("GroupEnd", rank);
    transport.GradientsReady(arena, 0, kElements);
    LOCKSTEP_RETURN_IF_ERROR(transport.Agree({}).status());
    EXPECT_EQ(gpus.fake().CallsOf("GroupEnd", rank) - groups, 2);
    EXPECT_EQ(gpus.fake().CallsOf("Send", rank), 2);
    return EndIt(transport, arena);
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body), Each(IsOk()));
}

TEST(NcclOverlap, ARankOfWeightZeroSendsNoGradients) {
  FakeGpus gpus;
  const std::vector<float> weights = {0, 1};
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements));
    std::ranges::fill(arena.floats(), static_cast<float>(5 + rank));
    const ArenaShards part = {arena, kShards};
    LOCKSTEP_RETURN_IF_ERROR(transport.BeginReduction({&part, 1}, weights[rank]));
    transport.GradientsReady(arena, 0, kElements);
    return transport.ReduceToOwners(arena, kShards, weights,
                                    [](std::int64_t, std::span<const float> sums) {
                                      EXPECT_TRUE(AllAre<float>(sums, 6.0f));
                                    });
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body), Each(IsOk()));
  EXPECT_EQ(gpus.fake().CallsOf("Send", 0), 0);
  EXPECT_EQ(gpus.fake().CallsOf("Recv", 1), 0);
}

thread_local cudaStream_t current_stream = nullptr;

// The gradients of rank 0 come out of a collective on a stream of training code, which rank 1
// joins only after a while: nothing may be sent before, whatever was said to be ready.
TEST(NcclOverlap, WhatTheStreamOfTheThreadThatSpeaksStillMakesIsWaitedFor) {
  FakeGpus gpus([&](int, NcclOptions& options) {
    options.caller_stream = [] { return current_stream; };
  });
  const ncclUniqueId id = fake_nccl::NewId();
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena, BeginWithOnes(transport));
    fake_nccl::TestRank training(rank, 2);
    training.Start(id);
    EXPECT_EQ(training.Poll(), ncclSuccess);
    const std::vector<float> threes(kElements, 3.0f);
    float* const made = training.Device(threes);
    const auto broadcast = [&](void* to, std::size_t bytes) {
      EXPECT_EQ(training.api.Broadcast(made, to, bytes, ncclUint8, 1, training.comm,
                                       training.stream),
                ncclInProgress);
      EXPECT_EQ(training.Poll(), ncclSuccess);
    };
    broadcast(made, 4);  // connects
    if (rank == 0) {
      broadcast(arena.data, kElements * 4);
      std::thread autograd([&] {
        current_stream = training.stream;
        transport.GradientsReady(arena, 0, kElements);
      });
      autograd.join();
    } else {
      transport.GradientsReady(arena, 0, kElements);
      const int before = gpus.fake().CallsOf("EventQuery", 0);
      EXPECT_TRUE(fake_nccl::Eventually(
          [&] { return gpus.fake().CallsOf("EventQuery", 0) > before + 50; }));
      EXPECT_EQ(gpus.fake().CallsOf("Send"), 0);
      broadcast(made, kElements * 4);
    }
    LOCKSTEP_RETURN_IF_ERROR(transport.Agree({}).status());
    LOCKSTEP_RETURN_IF_ERROR(EndIt(transport, arena, 4));
    training.Finish();
    training.Stop();
    return absl::OkStatus();
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body), Each(IsOk()));
}

// One of NCCL's on the communication thread, or of CUDA's on the one that says what is ready.
TEST(NcclOverlap, ACallThatDoesNotComeBackEndsTheProcessOnceItIsWaitedFor) {
  for (const char* function : {"GroupEnd", "EventRecord"}) {
    SCOPED_TRACE(function);
    Ends ends;
    FakeGpus gpus([&](int, NcclOptions& options) {
      options.abort_timeout = absl::Milliseconds(200);
      options.end_process = [&](absl::string_view message) {
        ends.Add(message);
        gpus.fake().Release();
      };
    });
    const auto body = [&](int rank, Transport& transport) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena, BeginWithOnes(transport));
      if (rank == 1) {
        gpus.fake().Inject({.function = function,
                            .call = gpus.fake().CallsOf(function, 1),
                            .device = 1,
                            .fault = FakeNccl::Fault::kHold});
      }
      transport.GradientsReady(arena, 0, kElements);
      return transport.Agree({}).status();
    };
    const std::vector<absl::Status> statuses =
        RunOnGpus(gpus, 2, body, absl::Milliseconds(500));
    EXPECT_THAT(ends.messages(),
                ElementsAre(HasSubstr("did not come back on w1 (rank 1), GPU 1")));
    EXPECT_THAT(statuses[0], Not(IsOk()));
  }
}

TEST(NcclOverlap, AnErrorWhileNobodyWaitsIsOneOfTheNextCallOnAllRanks) {
  for (const char* function : {"Send", "EventQuery", "EventRecord"}) {
    SCOPED_TRACE(function);
    FakeGpus gpus;
    const auto body = [&](int rank, Transport& transport) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena, BeginWithOnes(transport));
      if (rank == 1) {
        const bool of_nccl = FakeNccl::IsOfNccl(function);
        gpus.fake().Inject({.function = function,
                            .call = gpus.fake().CallsOf(function, 1),
                            .device = 1,
                            .result = of_nccl ? static_cast<int>(ncclInternalError)
                                              : static_cast<int>(cudaErrorUnknown)});
      }
      transport.GradientsReady(arena, 0, kElements);
      return transport.Agree({}).status();
    };
    const std::vector<absl::Status> statuses = RunOnGpus(gpus, 2, body);
    EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kInternal));
    EXPECT_THAT(statuses[0],
                StatusIs(absl::StatusCode::kAborted, HasSubstr("w1 (rank 1) failed: ")));
  }
}

}  // namespace
}  // namespace lockstep
