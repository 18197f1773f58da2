#include "worker/transport/conformance/conformance.h"

#include <algorithm>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::Each;

// What one rank brings to an exchange: lists of tensors, and how each list moves.
struct Cargo {
  std::vector<Tensors> tensors;
  std::vector<Transfer> transfers;  // of `tensors`, one for each

  Cargo() = default;
  Cargo(Cargo&&) = default;  // a copy would refer to the tensors of the other

  void Add(Tensors&& list, Transfer manner) {
    tensors.push_back(std::move(list));
    manner.views = tensors.back().views();
    transfers.push_back(std::move(manner));
  }
};

// The manner and the layout are drawn from `seed`, alike on all ranks; the values
// also from `rank`.
Cargo RandomCargo(std::uint64_t seed, int rank, int world_size) {
  Prng prng(seed);
  Cargo cargo;
  for (int count = static_cast<int>(prng.Below(6)); count > 0; --count) {
    Transfer manner;
    if (prng.Below(2) == 0) {
      manner.reduce = kReduceOps[prng.Below(std::size(kReduceOps))];
      if (manner.reduce == ReduceOp::kMean && prng.Below(2) == 0) {
        for (int r = 0; r < world_size; ++r) {
          manner.weights.push_back(static_cast<double>(prng.Below(3)));
        }
        manner.weights[prng.Below(world_size)] = 1.5;
      }
    } else {
      manner.root = static_cast<int>(prng.Below(world_size));
    }
    Tensors tensors;
    for (int n = static_cast<int>(prng.Below(4)); n > 0; --n) {
      const DType dtype = kAllDTypes[prng.Below(std::size(kAllDTypes))];
      const std::int64_t elements = prng.Between(0, prng.Below(4) == 0 ? 9'000 : 50);
      if (manner.reduce.has_value() && !IsReducible(dtype, *manner.reduce)) continue;
      tensors.AddHard("t", dtype, {elements}, seed * 10 + rank);
    }
    cargo.Add(std::move(tensors), std::move(manner));
  }
  return cargo;
}

// What all ranks bring, and what each must hold afterwards.
struct Voyage {
  std::vector<Cargo> ranks;
  std::vector<std::vector<Bytes>> expected;  // by transfer
};

Voyage RandomVoyage(std::uint64_t seed, int world_size) {
  Voyage voyage;
  for (int r = 0; r < world_size; ++r) voyage.ranks.push_back(RandomCargo(seed, r, world_size));
  for (std::size_t i = 0; i < voyage.ranks[0].transfers.size(); ++i) {
    const Transfer& transfer = voyage.ranks[0].transfers[i];
    std::vector<const Tensors*> sources;
    for (const Cargo& cargo : voyage.ranks) sources.push_back(&cargo.tensors[i]);
    voyage.expected.push_back(transfer.reduce.has_value()
                                  ? ExpectedOf(*transfer.reduce, transfer.weights, sources)
                                  : sources[transfer.root]->bytes());
  }
  return voyage;
}

TEST_P(TransportConformance, TransfersOfAllRootsAndOperationsMoveInOneExchange) {
  if (world_size() < 2) GTEST_SKIP();
  std::vector<Voyage> voyages;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    voyages.push_back(RandomVoyage(seed, world_size()));
  }
  RunRanks([&](int rank, Transport& transport) {
    for (std::size_t v = 0; v < voyages.size(); ++v) {
      const Cargo& mine = voyages[v].ranks[rank];
      LOCKSTEP_ASSERT_OK(transport.Exchange(mine.transfers));
      for (std::size_t i = 0; i < mine.tensors.size(); ++i) {
        ASSERT_TRUE(mine.tensors[i].bytes() == voyages[v].expected[i])
            << "voyage " << v << " transfer " << i;
      }
    }
  });
}

TEST_P(TransportConformance, TransfersOfOneExchangeMoveInTheirOrder) {
  RunRanks([&](int rank, Transport& transport) {
    Tensors tensors;
    tensors.Add("a", DType::kInt32, {5}, 0);
    for (std::int32_t& value : tensors.values<std::int32_t>(0)) value = rank + 1;
    const std::vector<Transfer> transfers = {
        {.root = world_size() - 1, .views = tensors.views()},
        {.views = {}},
        {.reduce = ReduceOp::kSum, .views = tensors.views()}};
    LOCKSTEP_ASSERT_OK(transport.Exchange(transfers));
    EXPECT_THAT(tensors.values<std::int32_t>(0), Each(world_size() * world_size()));
  });
}

TEST_P(TransportConformance, AnExchangeOfNothingWaitsForAll) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_EXPECT_OK(transport.Exchange({}));
    const std::vector<Transfer> nothing(3);
    LOCKSTEP_EXPECT_OK(transport.Exchange(nothing));
    LOCKSTEP_EXPECT_OK(transport.Agree({}).status());
  });
}

TEST_P(TransportConformance, AnExchangeSkipsWhatAllRanksShareAndMovesTheRest) {
  RunRanks([&](int rank, Transport& transport) {
    const int root = world_size() - 1;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 100));
    if (rank == root) FillFloats(arena.floats(), 5);
    Tensors tensors;
    tensors.Add("count", DType::kInt64, {1}, 0);
    tensors.values<std::int64_t>(0)[0] = rank;
    const TensorView in_arena = {
        .spec = {.name = "in.arena", .dtype = DType::kFloat32, .shape = {100}},
        .data = arena.data};
    const std::vector<Transfer> transfers = {
        {.reduce = ReduceOp::kMax, .views = tensors.views()},
        {.root = root, .views = {&in_arena, 1}}};
    LOCKSTEP_ASSERT_OK(transport.Exchange(transfers));
    std::vector<float> expected(100);
    FillFloats(expected, 5);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arena.floats().begin()));
    EXPECT_EQ(tensors.values<std::int64_t>(0)[0], root);
    LOCKSTEP_ASSERT_OK(transport.Agree({}));
  });
}

TEST_P(TransportConformance, OperationsOfAllKindsMixInAnyOrder) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 3000));
    const std::vector<Shard> shards = EvenShards(3000, world_size());
    Prng prng(99);  // all ranks draw alike
    for (int i = 0; i < 60; ++i) {
      const int root = static_cast<int>(prng.Below(world_size()));
      const std::int64_t size = prng.Between(0, 400'000);
      switch (prng.Below(4)) {
        case 0: {
          Tensors tensors;
          tensors.Add("t", DType::kUint8, {size}, rank + i);
          LOCKSTEP_ASSERT_OK(transport.Broadcast(tensors.views(), root));
          Tensors expected;
          expected.Add("t", DType::kUint8, {size}, root + i);
          ASSERT_TRUE(tensors.bytes() == expected.bytes()) << i;
          break;
        }
        case 1: {
          Tensors tensors;
          tensors.Add("t", DType::kInt32, {size / 4}, 0);
          for (std::int32_t& value : tensors.values<std::int32_t>(0)) value = rank + i;
          LOCKSTEP_ASSERT_OK(transport.AllReduce(tensors.views(), ReduceOp::kMax));
          for (const std::int32_t value : tensors.values<std::int32_t>(0)) {
            ASSERT_EQ(value, world_size() - 1 + i);
          }
          break;
        }
        case 2: {
          std::fill(arena.floats().begin(), arena.floats().end(), 1.0f);
          LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, EqualWeights(world_size()), IntoArena(arena, shards[rank])));
          for (std::int64_t k = shards[rank].begin; k < shards[rank].end; ++k) {
            ASSERT_EQ(arena.floats()[k], static_cast<float>(world_size()));
          }
          LOCKSTEP_ASSERT_OK(transport.BroadcastFromOwners(arena, shards));
          ASSERT_THAT(arena.floats(), Each(static_cast<float>(world_size())));
          break;
        }
        default:
          LOCKSTEP_ASSERT_OK(transport.Agree({.step = i}));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
