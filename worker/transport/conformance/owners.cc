#include "worker/transport/conformance/conformance.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// The largest takes several messages of any transport.
constexpr std::int64_t kSizes[] = {1, 40, 20'001, kLarge / 8};
constexpr DType kTypes[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};

TEST_P(TransportConformance, ArenasAreZeroedAndAligned) {
  RunRanks([&](int rank, Transport& transport) {
    for (const ArenaUse use : {ArenaUse::kParameters, ArenaUse::kGradients}) {
      for (const DType dtype : kTypes) {
        for (const std::int64_t elements : {0, 1, 100'003, 700'000}) {
          LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                        transport.Allocate(use, dtype, elements));
          EXPECT_EQ(arena.dtype, dtype);
          EXPECT_EQ(arena.elements, elements);
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data) % 64, 0u);
          EXPECT_TRUE(std::all_of(arena.data, arena.data + arena.bytes(),
                                  [](std::byte each) { return each == std::byte{0}; }));
          if (use == ArenaUse::kGradients) {
            EXPECT_FALSE(arena.shared);
          }
        }
      }
    }
  });
}

TEST_P(TransportConformance, AllocateOfTooMuchIsAnErrorOnEveryRank) {
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport
                    .Allocate(ArenaUse::kGradients, DType::kFloat32, std::int64_t{1} << 42)
                    .status();
              }),
              Each(StatusIs(absl::StatusCode::kResourceExhausted)));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Allocate(ArenaUse::kParameters, DType::kFloat32, -1).status();
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument)));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Allocate(ArenaUse::kParameters, DType::kInt64, 1).status();
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int64[1]"))));
}

// The sums as owners must see them, bit for bit.
std::vector<float> NaiveSums(const std::vector<std::vector<float>>& gradients,
                             const std::vector<float>& weights) {
  std::vector<float> sums(gradients[0].size(), 0.0f);
  bool first = true;
  for (std::size_t r = 0; r < weights.size(); ++r) {
    if (weights[r] == 0) continue;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float product = weights[r] * gradients[r][i];
      sums[i] = first ? product : sums[i] + product;
    }
    first = false;
  }
  return sums;
}

std::vector<float> UnequalWeights(int world_size) {
  std::vector<float> weights;
  for (int r = 0; r < world_size; ++r) weights.push_back(0.25f + 0.3f * r);
  return weights;
}

// Takes sums in, and checks that they come in order and without a gap.
class Sums {
 public:
  ConsumeSums Taker() {
    return [this](std::int64_t begin, std::span<const float> sums) {
      EXPECT_EQ(begin, static_cast<std::int64_t>(values_.size()));
      values_.insert(values_.end(), sums.begin(), sums.end());
    };
  }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Gradients of all ranks for NaiveSums(), as FillArena() makes them.
std::vector<std::vector<float>> GradientsOf(DType dtype, std::int64_t elements, int world_size,
                                            std::uint64_t seed) {
  std::vector<std::vector<float>> gradients;
  std::vector<std::byte> memory(elements * ElementBytes(dtype));
  for (int r = 0; r < world_size; ++r) {
    const Arena arena = {.dtype = dtype, .data = memory.data(), .elements = elements};
    FillArena(arena, seed + r);
    gradients.push_back(ValuesOf(arena));
  }
  return gradients;
}

// By seed: the sums of several steps.
std::map<std::uint64_t, std::vector<float>> NaiveSumsOf(DType dtype, std::int64_t elements,
                                                        const std::vector<float>& weights) {
  std::map<std::uint64_t, std::vector<float>> sums;
  const int world_size = static_cast<int>(weights.size());
  for (const std::uint64_t seed : {10, 20, 30}) {
    sums[seed] = NaiveSums(GradientsOf(dtype, elements, world_size, seed), weights);
  }
  return sums;
}

TEST_P(TransportConformance, ReduceToOwnersIsTheWeightedSumInRankOrder) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t elements : kSizes) {
      const std::vector<float> weights = UnequalWeights(world_size());
      const std::map<std::uint64_t, std::vector<float>> expected =
          NaiveSumsOf(dtype, elements, weights);
      RunRanks([&](int rank, Transport& transport) {
        const std::vector<Shard> shards = EvenShards(elements, world_size());
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                      transport.Allocate(ArenaUse::kGradients, dtype, elements));
        for (const auto& [seed, naive] : expected) {
          FillArena(arena, seed + rank);
          const std::vector<float> before = ValuesOf(arena);
          Sums sums;
          LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, weights, sums.Taker()));
          const Shard& mine = shards[rank];
          EXPECT_TRUE(SameBits(sums.values(),
                               std::span(naive).subspan(mine.begin, mine.elements())))
              << elements << " elements, seed " << seed;
          EXPECT_TRUE(SameBits(ValuesOf(arena), before));
          LOCKSTEP_ASSERT_OK(transport.Agree({}));
        }
      });
    }
  }
}

TEST_P(TransportConformance, SumsMayBePutWhereTheRanksOwnGradientsWere) {
  RunRanks([&](int rank, Transport& transport) {
    const std::int64_t elements = 300'000;
    const std::vector<Shard> shards = EvenShards(elements, world_size());
    const std::vector<float> weights = UnequalWeights(world_size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, elements));
    FillArena(arena, 10 + rank);
    LOCKSTEP_ASSERT_OK(
        transport.ReduceToOwners(arena, shards, weights, IntoArena(arena, shards[rank])));
    const std::vector<float> expected =
        NaiveSums(GradientsOf(DType::kFloat32, elements, world_size(), 10), weights);
    const Shard& mine = shards[rank];
    EXPECT_TRUE(SameBits(arena.floats().subspan(mine.begin, mine.elements()),
                         std::span(expected).subspan(mine.begin, mine.elements())));
  });
}

TEST_P(TransportConformance, ARankOfWeightZeroContributesNotEvenNaN) {
  RunRanks([&](int rank, Transport& transport) {
    const std::vector<Shard> shards = EvenShards(1000, world_size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 1000));
    std::vector<float> weights(world_size(), 0.5f);
    weights.back() = 0;
    const bool out_of_data = rank == world_size() - 1;
    std::ranges::fill(arena.floats(), out_of_data ? std::numeric_limits<float>::quiet_NaN() : 2.0f);
    Sums sums;
    LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, weights, sums.Taker()));
    EXPECT_EQ(static_cast<std::int64_t>(sums.values().size()), shards[rank].elements());
    EXPECT_THAT(sums.values(), Each(static_cast<float>(world_size() - 1)));
  });
}

TEST_P(TransportConformance, BroadcastFromOwnersGivesEveryRankEveryShard) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t elements : {1, 100, kLarge / 8}) {
      RunRanks([&](int rank, Transport& transport) {
        const std::vector<Shard> shards = EvenShards(elements, world_size());
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                      transport.Allocate(ArenaUse::kParameters, dtype, elements));
        for (int step = 1; step <= 2; ++step) {
          const auto value = [&](std::int64_t i, int owner) {
            return static_cast<float>(i % 50 * step + owner);  // exact in all types
          };
          for (std::int64_t i = shards[rank].begin; i < shards[rank].end; ++i) {
            Store(arena, i, value(i, rank));
          }
          LOCKSTEP_ASSERT_OK(transport.BroadcastFromOwners(arena, shards));
          const std::vector<float> values = ValuesOf(arena);
          std::int64_t wrong = 0;
          for (int owner = 0; owner < world_size(); ++owner) {
            for (std::int64_t i = shards[owner].begin; i < shards[owner].end; ++i) {
              if (values[i] != value(i, owner)) ++wrong;
            }
          }
          EXPECT_EQ(wrong, 0);
          // Nobody writes the next step while another still reads this one.
          LOCKSTEP_ASSERT_OK(transport.Agree({}));
        }
      });
    }
  }
}

TEST_P(TransportConformance, UpdateShardsGivesEveryRankWhatOwnersMakeOfTheSums) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t elements : kSizes) {
      const std::vector<float> weights = UnequalWeights(world_size());
      const std::map<std::uint64_t, std::vector<float>> expected =
          NaiveSumsOf(dtype, elements, weights);
      RunRanks([&](int rank, Transport& transport) {
        const std::vector<Shard> shards = EvenShards(elements, world_size());
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena gradients,
                                      transport.Allocate(ArenaUse::kGradients, dtype, elements));
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena parameters,
                                      transport.Allocate(ArenaUse::kParameters, dtype, elements));
        // Gradients change as soon as a step is over: no rank may still read them.
        for (const auto& [seed, naive_sums] : expected) {
          FillArena(gradients, seed + rank);
          std::int64_t next = 0;
          LOCKSTEP_ASSERT_OK(transport.UpdateShards(
              gradients, parameters, shards, weights,
              [&](std::int64_t begin, std::span<const float> sums) {
                EXPECT_EQ(begin, next);
                next += static_cast<std::int64_t>(sums.size());
                for (std::size_t i = 0; i < sums.size(); ++i) {
                  Store(parameters, shards[rank].begin + begin + static_cast<std::int64_t>(i),
                        sums[i] * static_cast<float>(rank + 1));
                }
              }));
          EXPECT_EQ(next, shards[rank].elements());
          std::vector<std::byte> memory(elements * ElementBytes(dtype));
          const Arena naive = {.dtype = dtype, .data = memory.data(), .elements = elements};
          for (int owner = 0; owner < world_size(); ++owner) {
            for (std::int64_t i = shards[owner].begin; i < shards[owner].end; ++i) {
              Store(naive, i, naive_sums[i] * static_cast<float>(owner + 1));
            }
          }
          EXPECT_EQ(std::memcmp(parameters.data, naive.data, naive.bytes()), 0)
              << elements << " elements, seed " << seed;
        }
      });
    }
  }
}

TEST_P(TransportConformance, DifferentWeightsAreAnErrorOnEveryRankAndNothingIsHandedOver) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                const auto arena = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 64);
                if (!arena.ok()) return arena.status();
                std::vector<float> weights = EqualWeights(world_size());
                if (rank == 1) weights[0] = 2;
                return transport.ReduceToOwners(
                    *arena, EvenShards(64, world_size()), weights,
                    [](std::int64_t, std::span<const float>) { ADD_FAILURE(); });
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("'weight 0': 1 on w0 (rank 0)"),
                                  HasSubstr("2 on w1 (rank 1)")))));
}

}  // namespace
}  // namespace lockstep
