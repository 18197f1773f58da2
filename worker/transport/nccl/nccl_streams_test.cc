// The transport where arithmetic is put on its stream: what must be ordered by events, and what
// the host does not wait for.
#include <algorithm>
#include <atomic>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/overlap.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/nccl/fake/test_rank.h"
#include "worker/transport/nccl/fake_gpus.h"
#include "worker/transport/nccl/stream_math.h"

namespace lockstep {
namespace {

using testing::Each;

// A StreamMath for each rank.
struct StreamGpus {
  explicit StreamGpus(std::int64_t piece_bytes = kTestPieceBytes)
      : gpus([this, piece_bytes](int rank, NcclOptions& options) {
          maths[rank] = std::make_shared<StreamMath>(&gpus.fake());
          options.math = maths[rank];
          options.piece_bytes = piece_bytes;
        }) {}

  std::shared_ptr<StreamMath> maths[8];
  FakeGpus gpus;
};

// The conformance suite reads sums at once, but these tests do not.
class StreamFactory final : public TransportFactory {
 public:
  std::string name() const override { return "nccl on fakes, by streams"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override {
    return on_.gpus.Create(group, exchange);
  }

 private:
  StreamGpus on_;
};

INSTANTIATE_TEST_SUITE_P(
    NcclByStreams, TransportOverlap,
    AllWorldSizes({.make_factory = [] { return std::make_shared<StreamFactory>(); }}),
    ConformanceCaseName);

// Of rank `rank` in a step, small enough that all sums are exact in all types.
float Gradient(int step, int rank, std::int64_t i) {
  return static_cast<float>((i * (rank + 1) + step) % 5 + rank);
}

struct Arenas {
  Arena gradients;
  Arena parameters;
  std::vector<Shard> shards;
};

// Begins the reduction if `early`, updates parameters to twice the sums, and checks them.
absl::Status Train(Transport& transport, StreamMath& math, const Arenas& arenas, int step,
                   bool early) {
  const int rank = transport.rank();
  const int ranks = transport.world_size();
  const std::int64_t elements = arenas.gradients.elements;
  if (early) {
    const ArenaShards part = {arenas.gradients, arenas.shards};
    LOCKSTEP_RETURN_IF_ERROR(transport.BeginReduction({&part, 1}, 1));
  }
  for (std::int64_t end = elements; end > 0;) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - elements / 7 - 1);
    for (std::int64_t i = begin; i < end; ++i) {
      Store(arenas.gradients, i, Gradient(step, rank, i));
    }
    transport.GradientsReady(arenas.gradients, begin, end);
    end = begin;
  }
  const auto update = [&](std::int64_t begin, std::span<const float> sums) {
    math.Launch([&, begin, sums] {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        Store(arenas.parameters,
              arenas.shards[rank].begin + begin + static_cast<std::int64_t>(i), 2 * sums[i]);
      }
    });
  };
  LOCKSTEP_RETURN_IF_ERROR(transport.UpdateShards(arenas.gradients, arenas.parameters,
                                                  arenas.shards, EqualWeights(ranks), update));
  // Gradients may be written again, and parameters read.
  for (std::int64_t i = 0; i < elements; ++i) Store(arenas.gradients, i, -1);
  const std::vector<float> values = ValuesOf(arenas.parameters);
  std::int64_t wrong = 0;
  for (const Shard& shard : arenas.shards) {
    for (std::int64_t i = shard.begin; i < shard.end; ++i) {
      float expected = 0;
      for (int r = 0; r < ranks; ++r) expected += 2 * Gradient(step, r, i);
      if (values[i] != expected) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0) << (early ? "early" : "late") << ", step " << step;
  return absl::OkStatus();
}

TEST(NcclStreams, StepsOfManyPiecesComeOutRightInAnyTurn) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", DTypeName(dtype)));
      // Some 25 pieces of a shard.
      StreamGpus on(/*piece_bytes=*/256 * ranks);
      const auto body = [&](int rank, Transport& transport) -> absl::Status {
        constexpr std::int64_t kElements = 6'000;
        Arenas arenas;
        LOCKSTEP_ASSIGN_OR_RETURN(arenas.gradients,
                                  transport.Allocate(ArenaUse::kGradients, dtype, kElements));
        LOCKSTEP_ASSIGN_OR_RETURN(arenas.parameters,
                                  transport.Allocate(ArenaUse::kParameters, dtype, kElements));
        for (int step = 0; step < 6; ++step) {
          arenas.shards = EvenShards(kElements - 100 * step, ranks);
          LOCKSTEP_RETURN_IF_ERROR(
              Train(transport, *on.maths[rank], arenas, step, /*early=*/step % 3 != 0));
        }
        return absl::OkStatus();
      };
      EXPECT_THAT(RunOnGpus(on.gpus, ranks, body), Each(IsOk()));
    }
  }
}

TEST(NcclStreams, TheHostPutsAFewPiecesOnTheDeviceBeforeTheFirstIsDone) {
  constexpr int kPieces = 6;
  constexpr std::int64_t kElements = 2 * kPieces * 64;
  StreamGpus on(/*piece_bytes=*/256);
  std::atomic<int> handed_over = 0;  // pieces of rank 0
  const ncclUniqueId id = fake_nccl::NewId();
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    Arenas arenas = {.shards = {{0, kElements / 2}, {kElements / 2, kElements}}};
    LOCKSTEP_ASSIGN_OR_RETURN(
        arenas.gradients, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements));
    LOCKSTEP_ASSIGN_OR_RETURN(
        arenas.parameters, transport.Allocate(ArenaUse::kParameters, DType::kFloat32, kElements));
    // NCCL connects ranks in the first group, which waits for all.
    LOCKSTEP_RETURN_IF_ERROR(Train(transport, *on.maths[rank], arenas, 0, /*early=*/false));

    // A collective that rank 1 joins late holds back the arithmetic of rank 0.
    fake_nccl::TestRank other(rank, 2);
    other.Start(id);
    EXPECT_EQ(other.Poll(), ncclSuccess);
    float* const memory = other.Device(std::vector<float>(1));
    const auto join = [&] {
      EXPECT_EQ(other.api.Broadcast(memory, memory, 4, ncclUint8, 1, other.comm, other.stream),
                ncclInProgress);
      EXPECT_EQ(other.Poll(), ncclSuccess);
    };
    join();  // connects
    if (rank == 0) {
      join();
      EXPECT_EQ(other.api.EventRecord(other.event, other.stream), cudaSuccess);
    }
    std::ranges::fill(arenas.gradients.floats(), 1.0f);
    const auto update = [&](std::int64_t begin, std::span<const float> sums) {
      if (rank == 0 && handed_over++ == 0) {
        EXPECT_EQ(other.api.StreamWaitEvent(on.maths[0]->stream(), other.event, 0), cudaSuccess);
      }
      if (rank == 1 && begin == 0) {
        EXPECT_TRUE(fake_nccl::Eventually([&] { return handed_over == kPieces; }));
        join();
      }
      on.maths[rank]->Launch([&, begin, sums] {
        std::ranges::copy(sums, &arenas.parameters.floats()[arenas.shards[rank].begin + begin]);
      });
    };
    const absl::Status status = transport.UpdateShards(
        arenas.gradients, arenas.parameters, arenas.shards, EqualWeights(2), update);
    EXPECT_TRUE(AllAre<float>(arenas.parameters.floats(), 2.0f));
    other.Finish();
    other.Stop();
    return status;
  };
  EXPECT_THAT(RunOnGpus(on.gpus, 2, body), Each(IsOk()));
}

}  // namespace
}  // namespace lockstep
