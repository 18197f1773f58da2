// What the conformance suite does not see: where tensors lie, what is cut, and what NCCL is
// asked for.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/forwarding_math.h"
#include "worker/device/host_math.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/nccl/fake_gpus.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsNull;
using testing::NotNull;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

// What a tensor lies in.
enum class Place { kHost, kPinned, kDevice, kManaged };

// Memory of one rank's device, or of another place. Freed with it.
class Placed {
 public:
  Placed(Place place, int device, std::int64_t bytes) : place_(place), device_(device) {
    const NcclApi api = FakeNccl::Api();
    void* data = nullptr;
    switch (place) {
      case Place::kHost:
        host_.resize(bytes);
        data = host_.data();
        break;
      case Place::kPinned:
        EXPECT_EQ(api.HostAlloc(&data, bytes, cudaHostAllocDefault), cudaSuccess);
        break;
      case Place::kManaged:
        EXPECT_EQ(api.MallocManaged(&data, bytes, cudaMemAttachGlobal), cudaSuccess);
        break;
      case Place::kDevice:
        EXPECT_EQ(api.SetDevice(device_), cudaSuccess);
        EXPECT_EQ(api.Malloc(&data, bytes), cudaSuccess);
        break;
    }
    data_ = static_cast<std::byte*>(data);
  }
  Placed(Placed&& other) noexcept
      : place_(other.place_),
        device_(other.device_),
        host_(std::move(other.host_)),
        data_(std::exchange(other.data_, nullptr)) {}
  ~Placed() {
    if (data_ == nullptr || place_ == Place::kHost) return;
    const NcclApi api = FakeNccl::Api();
    EXPECT_EQ(api.SetDevice(device_), cudaSuccess);
    EXPECT_EQ(place_ == Place::kPinned ? api.FreeHost(data_) : api.Free(data_), cudaSuccess);
  }
  std::byte* data() const { return data_; }

 private:
  const Place place_;
  const int device_;
  std::vector<std::byte> host_;
  std::byte* data_ = nullptr;
};

constexpr std::int64_t kLong = 3 << 19;  // bytes; moves in place where it can
constexpr std::int64_t kShort = 1000;

// A list of int32, large and small in turns, each in another place; where, differs by rank.
struct Luggage {
  std::vector<Placed> memory;
  std::vector<TensorView> views;

  explicit Luggage(int rank) {
    constexpr Place kPlaces[] = {Place::kDevice, Place::kHost, Place::kPinned, Place::kManaged};
    for (int i = 0; i < 10; ++i) {
      const std::int64_t bytes = i % 2 == 0 ? kLong : kShort;
      memory.emplace_back(kPlaces[(i / 2 + rank) % 4], rank, bytes);
      views.push_back({.spec = {.name = absl::StrCat("t", i),
                                .dtype = DType::kInt32,
                                .shape = {bytes / 4}},
                       .data = memory.back().data()});
      for (std::int32_t& value : Values(i)) value = 100 * i + rank;
    }
  }
  std::span<std::int32_t> Values(int i) {
    return {reinterpret_cast<std::int32_t*>(views[i].data),
            static_cast<std::size_t>(views[i].spec.elements())};
  }
};

TEST(NcclTransport, TensorsOfAllPlacesMoveInOneTransferWhereverOtherRanksHaveThem) {
  FakeGpus gpus;
  EXPECT_THAT(RunOnGpus(gpus, 3,
                        [](int rank, Transport& transport) {
                          Luggage luggage(rank);
                          LOCKSTEP_RETURN_IF_ERROR(transport.Broadcast(luggage.views, 2));
                          for (int i = 0; i < 10; ++i) {
                            EXPECT_TRUE(AllAre<std::int32_t>(luggage.Values(i), 100 * i + 2)) << i;
                            for (std::int32_t& value : luggage.Values(i)) value = i + rank;
                          }
                          LOCKSTEP_RETURN_IF_ERROR(
                              transport.AllReduce(luggage.views, ReduceOp::kSum));
                          for (int i = 0; i < 10; ++i) {
                            EXPECT_TRUE(AllAre<std::int32_t>(luggage.Values(i), 3 * i + 3)) << i;
                          }
                          return absl::OkStatus();
                        }),
              Each(IsOk()));
}

TEST(NcclTransport, ALargeTensorOfTheDeviceIsBroadcastWhereItLies) {
  FakeGpus gpus;
  EXPECT_THAT(RunOnGpus(gpus, 2,
                        [](int rank, Transport& transport) {
                          const Placed memory(Place::kDevice, rank, kLong);
                          std::memset(memory.data(), 3 + rank, kLong);
                          const TensorView view = {
                              .spec = {.name = "t", .dtype = DType::kUint8, .shape = {kLong}},
                              .data = memory.data()};
                          LOCKSTEP_RETURN_IF_ERROR(transport.Broadcast({&view, 1}, 1));
                          EXPECT_TRUE(AllAre<std::byte>({memory.data(), kLong}, std::byte{4}));
                          return absl::OkStatus();
                        }),
              Each(IsOk()));
  EXPECT_EQ(gpus.fake().CallsOf("MemcpyAsync"), 0);
  EXPECT_EQ(gpus.fake().CallsOf("Broadcast", 0), kLong / kTestPieceBytes);
}

TEST(NcclTransport, WhatTheCallersStreamStillMakesIsWaitedFor) {
  constexpr std::int64_t kBytes = 16 << 20;
  std::vector<cudaStream_t> streams(2);
  FakeGpus gpus([&](int rank, NcclOptions& options) {
    options.caller_stream = [&, rank] { return streams[rank]; };
  });
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    const NcclApi api = FakeNccl::Api();
    const Placed memory(Place::kDevice, rank, 2 * kBytes);
    std::byte* const from = memory.data() + kBytes;
    std::memset(from, 5, kBytes);
    EXPECT_EQ(api.StreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(api.MemcpyAsync(memory.data(), from, kBytes, cudaMemcpyDefault, streams[rank]),
              cudaSuccess);
    // Its end: what came first would be through by then.
    const TensorView view = {.spec = {.name = "t", .dtype = DType::kUint8, .shape = {kLong}},
                             .data = from - kLong};
    const absl::Status status = transport.Broadcast({&view, 1}, 0);
    EXPECT_TRUE(AllAre<std::byte>({view.data, kLong}, std::byte{5}));
    EXPECT_EQ(api.StreamDestroy(streams[rank]), cudaSuccess);
    streams[rank] = nullptr;
    return status;
  };
  EXPECT_THAT(RunOnGpus(gpus, 2, body), Each(IsOk()));
}

// Elements [0, 30): the second owner has none, and some belong to nobody.
const std::vector<Shard> kUneven = {{0, 7}, {7, 7}, {8, 29}};

// Rank r brings i + r and owners make twice the sums of them.
absl::Status TrainUneven(Transport& transport, DType dtype, std::span<const float> weights) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Arena gradients,
                            transport.Allocate(ArenaUse::kGradients, dtype, 30));
  LOCKSTEP_ASSIGN_OR_RETURN(const Arena parameters,
                            transport.Allocate(ArenaUse::kParameters, dtype, 30));
  const int rank = transport.rank();
  for (int i = 0; i < 30; ++i) {
    Store(gradients, i, static_cast<float>(i + rank));
    Store(parameters, i, -1);
  }
  std::int64_t next = 0;
  const auto update = [&](std::int64_t begin, std::span<const float> sums) {
    EXPECT_EQ(begin, next);
    for (const float sum : sums) Store(parameters, kUneven[rank].begin + next++, 2 * sum);
  };
  LOCKSTEP_RETURN_IF_ERROR(
      transport.UpdateShards(gradients, parameters, kUneven, weights, update));
  EXPECT_EQ(next, kUneven[rank].elements());
  const std::vector<float> values = ValuesOf(parameters);
  for (int i = 0; i < 30; ++i) {
    float expected = 0;
    for (int r = 0; r < 3; ++r) expected += 2 * weights[r] * static_cast<float>(i + r);
    EXPECT_EQ(values[i], i == 7 || i == 29 ? -1 : expected) << i;
  }
  return absl::OkStatus();
}

TEST(NcclTransport, PiecesOfAFewElementsMakeTheSameOfUnevenShards) {
  for (const std::int64_t piece_bytes : {16, 48, 1 << 20}) {
    FakeGpus gpus([&](int, NcclOptions& options) { options.piece_bytes = piece_bytes; });
    EXPECT_THAT(RunOnGpus(gpus, 3,
                          [](int rank, Transport& transport) {
                            const std::vector<float> weights = {1, 0.5, 2};
                            for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
                              LOCKSTEP_RETURN_IF_ERROR(TrainUneven(transport, dtype, weights));
                            }
                            Tensors tensors;
                            tensors.Add("odd", DType::kUint8, {3}, 0);
                            tensors.Add("ints", DType::kInt64, {21}, 0);
                            std::ranges::fill(tensors.values<std::int64_t>(1), rank);
                            LOCKSTEP_RETURN_IF_ERROR(
                                transport.AllReduce(tensors.views(), ReduceOp::kMax));
                            EXPECT_THAT(tensors.values<std::int64_t>(1), Each(2));
                            return transport.Broadcast(tensors.views(), 1);
                          }),
                Each(IsOk()));
  }
}

TEST(NcclTransport, ARankOfWeightZeroSendsNoGradients) {
  FakeGpus gpus;
  const std::vector<float> weights = {1, 1, 0};
  EXPECT_THAT(RunOnGpus(gpus, 3,
                        [&](int rank, Transport& transport) {
                          return TrainUneven(transport, DType::kFloat32, weights);
                        }),
              Each(IsOk()));
  EXPECT_EQ(gpus.fake().CallsOf("Send", 2), 0);
  EXPECT_EQ(gpus.fake().CallsOf("Recv", 2), 2);
  EXPECT_EQ(gpus.fake().CallsOf("Send", 0), 1);  // to rank 2; rank 1 owns nothing
}

TEST(NcclTransport, EvenShardsSpreadByOneAllGatherAndOthersByAGroupOfBroadcasts) {
  FakeGpus gpus;
  EXPECT_THAT(RunOnGpus(gpus, 3,
                        [&](int rank, Transport& transport) -> absl::Status {
                          LOCKSTEP_ASSIGN_OR_RETURN(
                              const Arena arena,
                              transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 30));
                          const std::vector<Shard> even = {{0, 10}, {10, 20}, {20, 30}};
                          LOCKSTEP_RETURN_IF_ERROR(transport.BroadcastFromOwners(arena, even));
                          EXPECT_EQ(gpus.fake().CallsOf("AllGather", rank), 1);
                          EXPECT_EQ(gpus.fake().CallsOf("Broadcast", rank), 0);
                          LOCKSTEP_RETURN_IF_ERROR(transport.BroadcastFromOwners(arena, kUneven));
                          EXPECT_EQ(gpus.fake().CallsOf("AllGather", rank), 1);
                          EXPECT_EQ(gpus.fake().CallsOf("Broadcast", rank), 2);
                          return absl::OkStatus();
                        }),
              Each(IsOk()));
}

// Of one rank.
std::atomic<std::int64_t> staged_bytes = 0;

TEST(NcclTransport, MemoryBesideTheArenasIsBoundedByTheBytesOfAPiece) {
  constexpr std::int64_t kElements = 8 * kTestPieceBytes;
  staged_bytes = 0;
  FakeGpus gpus([](int rank, NcclOptions& options) {
    if (rank != 0) return;
    // Nothing is freed before the end, but for what grows.
    options.api.Malloc = [](void** memory, std::size_t bytes) {
      staged_bytes += static_cast<std::int64_t>(bytes);
      return FakeNccl::Api().Malloc(memory, bytes);
    };
    options.api.HostAlloc = [](void** memory, std::size_t bytes, unsigned flags) {
      staged_bytes += static_cast<std::int64_t>(bytes);
      return FakeNccl::Api().HostAlloc(memory, bytes, flags);
    };
  });
  const auto body = [](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena gradients,
                              transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Arena parameters,
        transport.Allocate(ArenaUse::kParameters, DType::kFloat32, kElements));
    const std::vector<Shard> shards = EvenShards(kElements, 4);
    LOCKSTEP_RETURN_IF_ERROR(
        transport.UpdateShards(gradients, parameters, shards, EqualWeights(4), Ignore));
    const ArenaShards part = {gradients, shards};
    LOCKSTEP_RETURN_IF_ERROR(transport.BeginReduction({&part, 1}, 1));
    transport.GradientsReady(gradients, 0, kElements);
    LOCKSTEP_RETURN_IF_ERROR(
        transport.UpdateShards(gradients, parameters, shards, EqualWeights(4), Ignore));
    Tensors tensors;
    tensors.Add("large", DType::kUint8, {4 * kTestPieceBytes}, 5);
    LOCKSTEP_RETURN_IF_ERROR(transport.Broadcast(tensors.views(), 0));
    return transport.AllReduce(tensors.views(), ReduceOp::kMax);
  };
  EXPECT_THAT(RunOnGpus(gpus, 4, body), Each(IsOk()));
  EXPECT_GT(staged_bytes, kTestPieceBytes);
  // Two pieces in sets and the sums of a rank's part on the device, one piece on the host.
  EXPECT_LE(staged_bytes, 3 * kTestPieceBytes + kTestPieceBytes / 3);
}

TEST(NcclTransport, AWorldOfOneRankWaitsForItsDeviceToo) {
  FakeGpus gpus;
  const auto body = [&](int rank, Transport& transport) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena arena,
                              transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 30));
    const int before = gpus.fake().CallsOf("EventQuery");
    LOCKSTEP_RETURN_IF_ERROR(transport.BroadcastFromOwners(arena, std::vector<Shard>{{0, 30}}));
    EXPECT_GT(gpus.fake().CallsOf("EventQuery"), before);
    return absl::OkStatus();
  };
  EXPECT_THAT(RunOnGpus(gpus, 1, body), Each(IsOk()));
}

// Keeps the streams that it is given.
class StreamsOf final : public ForwardingMath {
 public:
  explicit StreamsOf(std::vector<void*>* streams)
      : ForwardingMath(std::make_unique<HostMath>()), streams_(*streams) {}

  absl::Status UseStream(void* stream) override {
    streams_.push_back(stream);
    return absl::OkStatus();
  }

 private:
  std::vector<void*>& streams_;
};

TEST(NcclTransport, TheArithmeticIsTakenOffTheStreamsThatGo) {
  std::vector<void*> streams;
  FakeGpus gpus([&](int rank, NcclOptions& options) {
    if (rank == 0) options.math = std::make_shared<StreamsOf>(&streams);
  });
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(RunOnGpus(gpus, 2, [](int, Transport&) { return absl::OkStatus(); }), Each(IsOk()));
  }
  EXPECT_THAT(streams, ElementsAre(NotNull(), IsNull(), NotNull(), IsNull()));
}

TEST(NcclTransport, ATransportThatGoesAfterTheNextCameLeavesTheArithmeticWhereItIs) {
  FakeNccl fake;
  std::vector<void*> streams;
  NcclFactory factory({.api = FakeNccl::Api(), .math = std::make_shared<StreamsOf>(&streams)});
  const auto form = [&](int epoch) {
    return *factory.Create({.epoch = Epoch(epoch), .members = {"w0"}},
                           [](const std::optional<std::string>& mine) { return *mine; });
  };
  std::unique_ptr<Transport> first = form(1);
  std::unique_ptr<Transport> second = form(2);
  first.reset();
  EXPECT_THAT(streams, ElementsAre(NotNull(), NotNull()));
  second.reset();
  EXPECT_THAT(streams, ElementsAre(NotNull(), NotNull(), IsNull()));
}

TEST(NcclTransport, AStepMovesTwiceTheParametersOfTheOtherRanksAndNoMore) {
  constexpr std::int64_t kBytes = 4 * 1200;
  FakeGpus gpus;
  EXPECT_THAT(
      RunOnGpus(gpus, 4,
                [](int rank, Transport& transport) -> absl::Status {
                  LOCKSTEP_ASSIGN_OR_RETURN(
                      const Arena gradients,
                      transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kBytes / 4));
                  LOCKSTEP_ASSIGN_OR_RETURN(
                      const Arena parameters,
                      transport.Allocate(ArenaUse::kParameters, DType::kFloat32, kBytes / 4));
                  EXPECT_EQ(transport.traffic(), TrafficCounters{});
                  const std::vector<Shard> shards = {{0, 300}, {300, 600}, {600, 900}, {900, 1200}};
                  LOCKSTEP_RETURN_IF_ERROR(transport.UpdateShards(gradients, parameters, shards,
                                                                  EqualWeights(4), Ignore));
                  // NCCL passes on what it broadcasts; that is not counted.
                  EXPECT_EQ(transport.traffic(),
                            (TrafficCounters{.sent_bytes = kBytes * 3 / 4 + kBytes / 4,
                                             .received_bytes = 2 * kBytes * 3 / 4}));
                  return absl::OkStatus();
                }),
      Each(IsOk()));
}

// On a GPU, the host's arithmetic could not reach it. On the fake it can: so what is asked for
// is looked at.
TEST(NcclTransport, ManagedArenasAreReducedInManagedMemory) {
  FakeGpus gpus([](int, NcclOptions& options) { options.managed_arenas = true; });
  const std::vector<absl::Status> statuses =
      RunOnGpus(gpus, 2, [](int rank, Transport& transport) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(
            const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 1000));
        std::ranges::fill(arena.floats(), 2.0f);
        return transport.ReduceToOwners(arena, EvenShards(1000, 2), EqualWeights(2),
                                        [](std::int64_t, std::span<const float> sums) {
                                          EXPECT_TRUE(AllAre<float>(sums, 4.0f));
                                        });
      });
  EXPECT_THAT(statuses, Each(IsOk()));
  EXPECT_GT(gpus.fake().CallsOf("MallocManaged"), 2);
  EXPECT_EQ(gpus.fake().CallsOf("Malloc"), 0);
  EXPECT_EQ(gpus.fake().CallsOf("MemAlloc"), 0);
}

}  // namespace
}  // namespace lockstep
