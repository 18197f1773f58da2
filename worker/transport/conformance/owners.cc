#include "worker/transport/conformance/conformance.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST_P(TransportConformance, ArenasAreZeroedAndAligned) {
  RunRanks([&](int rank, Transport& transport) {
    for (const ArenaUse use : {ArenaUse::kParameters, ArenaUse::kGradients}) {
      for (const std::int64_t elements : {0, 1, 100'003}) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena, transport.Allocate(use, elements));
        EXPECT_EQ(static_cast<std::int64_t>(arena.values.size()), elements);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.values.data()) % 64, 0u);
        EXPECT_THAT(arena.values, Each(0.0f));
        if (use == ArenaUse::kGradients) {
          EXPECT_FALSE(arena.shared);
        }
      }
    }
  });
}

TEST_P(TransportConformance, AllocateOfTooMuchIsAnErrorOnEveryRank) {
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Allocate(ArenaUse::kGradients, std::int64_t{1} << 42).status();
              }),
              Each(StatusIs(absl::StatusCode::kResourceExhausted)));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Allocate(ArenaUse::kParameters, -1).status();
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument)));
}

// The whole gradient as owners must see it, bit for bit.
std::vector<float> NaiveReduced(std::int64_t elements, const std::vector<float>& weights,
                                std::uint64_t seed) {
  std::vector<float> sum(elements, 0.0f);
  bool first = true;
  for (std::size_t r = 0; r < weights.size(); ++r) {
    if (weights[r] == 0) continue;
    std::vector<float> values(elements);
    FillFloats(values, seed + r);
    for (std::int64_t i = 0; i < elements; ++i) {
      sum[i] = first ? weights[r] * values[i] : sum[i] + weights[r] * values[i];
    }
    first = false;
  }
  return sum;
}

TEST_P(TransportConformance, ReduceToOwnersIsTheWeightedSumInRankOrder) {
  for (const std::int64_t elements : {1, 40, 70'001, kLarge / 4}) {
    RunRanks([&](int rank, Transport& transport) {
      const std::vector<Shard> shards = EvenShards(elements, world_size());
      std::vector<float> weights;
      for (int r = 0; r < world_size(); ++r) weights.push_back(0.25f + 0.3f * r);
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                    transport.Allocate(ArenaUse::kGradients, elements));
      for (std::uint64_t seed : {10u, 20u, 10u}) {
        FillFloats(arena.values, seed + rank);
        LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, weights[rank]));
        const std::vector<float> expected = NaiveReduced(elements, weights, seed);
        const Shard& mine = shards[rank];
        EXPECT_EQ(std::memcmp(arena.values.data() + mine.begin, expected.data() + mine.begin,
                              mine.elements() * sizeof(float)),
                  0)
            << elements << " elements, seed " << seed;
        LOCKSTEP_ASSERT_OK(transport.Agree({}));
      }
    });
  }
}

TEST_P(TransportConformance, ARankOfWeightZeroContributesNotEvenNaN) {
  RunRanks([&](int rank, Transport& transport) {
    const std::vector<Shard> shards = EvenShards(1000, world_size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kGradients, 1000));
    const bool out_of_data = rank == world_size() - 1;
    std::fill(arena.values.begin(), arena.values.end(),
              out_of_data ? std::numeric_limits<float>::quiet_NaN() : 2.0f);
    LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, out_of_data ? 0.0f : 0.5f));
    for (std::int64_t i = shards[rank].begin; i < shards[rank].end; ++i) {
      ASSERT_EQ(arena.values[i], static_cast<float>(world_size() - 1)) << i;
    }
  });
}

TEST_P(TransportConformance, BroadcastFromOwnersGivesEveryRankEveryShard) {
  for (const std::int64_t elements : {1, 100, kLarge / 4}) {
    RunRanks([&](int rank, Transport& transport) {
      const std::vector<Shard> shards = EvenShards(elements, world_size());
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                    transport.Allocate(ArenaUse::kParameters, elements));
      for (int step = 1; step <= 2; ++step) {
        for (std::int64_t i = shards[rank].begin; i < shards[rank].end; ++i) {
          arena.values[i] = static_cast<float>(i * step + rank);
        }
        LOCKSTEP_ASSERT_OK(transport.BroadcastFromOwners(arena, shards));
        std::int64_t wrong = 0;
        for (int owner = 0; owner < world_size(); ++owner) {
          for (std::int64_t i = shards[owner].begin; i < shards[owner].end; ++i) {
            if (arena.values[i] != static_cast<float>(i * step + owner)) ++wrong;
          }
        }
        EXPECT_EQ(wrong, 0);
        // Nobody writes the next step while another still reads this one.
        LOCKSTEP_ASSERT_OK(transport.Agree({}));
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
