// Reductions that are begun before gradients are ready.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

// Of any lengths, some perhaps empty; the ends of the arena may belong to nobody.
std::vector<Shard> RandomShards(std::int64_t elements, int world_size, Prng& prng) {
  std::vector<std::int64_t> cuts;
  for (int i = 0; i <= world_size; ++i) cuts.push_back(prng.Between(0, elements));
  std::ranges::sort(cuts);
  std::vector<Shard> shards;
  for (int r = 0; r < world_size; ++r) shards.push_back({cuts[r], cuts[r + 1]});
  return shards;
}

// Says that all of the arena is ready, in an order of this rank's own, some of it twice.
void SayReady(Transport& transport, const Arena& arena, Prng& prng) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::int64_t begin = 0; begin < arena.elements;) {
    const std::int64_t end = std::min(
        begin + prng.Between(1, std::max<std::int64_t>(arena.elements / 20, 1)), arena.elements);
    ranges.emplace_back(begin, end);
    if (prng.Between(0, 9) == 0) ranges.emplace_back(begin, end);
    begin = end;
  }
  for (std::size_t i = ranges.size(); i > 1; --i) {
    std::swap(ranges[i - 1], ranges[prng.Between(0, static_cast<std::int64_t>(i) - 1)]);
  }
  for (const auto& [begin, end] : ranges) transport.GradientsReady(arena, begin, end);
}

ConsumeSums Into(std::vector<float>& taken) {
  return [&taken](std::int64_t begin, std::span<const float> sums) {
    EXPECT_EQ(begin, static_cast<std::int64_t>(taken.size()));
    taken.insert(taken.end(), sums.begin(), sums.end());
  };
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<float> WeightsOf(int world_size, int step) {
  std::vector<float> weights;
  for (int r = 0; r < world_size; ++r) {
    weights.push_back(step == 1 && r == 0 ? 0 : 0.25f + 0.3f * r + step);
  }
  return weights;
}

TEST_P(TransportConformance, AReductionThatWasBegunEndsWithTheSameSums) {
  for (const auto& [first, second] : {std::pair(DType::kFloat32, DType::kBfloat16),
                                      std::pair(DType::kFloat16, DType::kFloat32)}) {
    RunRanks([&, first = first, second = second](int rank, Transport& transport) {
      struct Block {
        Arena early, late, of_early, of_late;
      };
      std::vector<Block> blocks;
      for (const auto& [dtype, elements] : {std::pair(first, std::int64_t{kLarge / 3}),
                                            std::pair(second, std::int64_t{1'003}),
                                            std::pair(first, std::int64_t{0})}) {
        Block& block = blocks.emplace_back();
        for (Arena* arena : {&block.early, &block.late}) {
          LOCKSTEP_ASSERT_OK_AND_ASSIGN(
              *arena, transport.Allocate(ArenaUse::kGradients, dtype, elements));
        }
        for (Arena* arena : {&block.of_early, &block.of_late}) {
          LOCKSTEP_ASSERT_OK_AND_ASSIGN(
              *arena, transport.Allocate(ArenaUse::kParameters, dtype, elements));
        }
      }
      Prng same(17);  // on all ranks
      Prng own(100 + rank);
      for (int step = 0; step < 4; ++step) {
        const std::vector<float> weights = WeightsOf(world_size(), step);
        std::vector<std::vector<Shard>> shards;
        std::vector<ArenaShards> parts;
        for (const Block& block : blocks) {
          shards.push_back(RandomShards(block.early.elements, world_size(), same));
        }
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          FillArena(blocks[i].late, 1000 * step + 10 * i + rank);
          parts.push_back({blocks[i].early, shards[i]});
        }
        LOCKSTEP_ASSERT_OK(transport.BeginReduction(parts, weights[rank]));
        for (std::size_t i = blocks.size(); i-- > 0;) {
          FillArena(blocks[i].early, 1000 * step + 10 * i + rank);
          SayReady(transport, blocks[i].early, own);
        }
        LOCKSTEP_ASSERT_OK(transport.Agree({}));
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const Block& block = blocks[i];
          std::vector<float> early, late;
          if ((step + i) % 2 == 0) {
            LOCKSTEP_ASSERT_OK(
                transport.ReduceToOwners(block.early, shards[i], weights, Into(early)));
            LOCKSTEP_ASSERT_OK(
                transport.ReduceToOwners(block.late, shards[i], weights, Into(late)));
          } else {
            for (const auto& [gradients, parameters, taken] :
                 {std::tuple(block.early, block.of_early, &early),
                  std::tuple(block.late, block.of_late, &late)}) {
              LOCKSTEP_ASSERT_OK(transport.UpdateShards(
                  gradients, parameters, shards[i], weights,
                  [&, parameters = parameters, taken = taken](std::int64_t begin,
                                                              std::span<const float> sums) {
                    Into(*taken)(begin, sums);
                    for (std::size_t k = 0; k < sums.size(); ++k) {
                      Store(parameters,
                            shards[i][rank].begin + begin + static_cast<std::int64_t>(k),
                            sums[k] * static_cast<float>(rank + 1));
                    }
                  }));
            }
            LOCKSTEP_ASSERT_OK(transport.Agree({}));
            EXPECT_TRUE(SameBits(ValuesOf(block.of_early), ValuesOf(block.of_late)));
          }
          EXPECT_EQ(static_cast<std::int64_t>(early.size()), shards[i][rank].elements());
          EXPECT_TRUE(SameBits(early, late)) << "step " << step << ", arena " << i;
        }
        LOCKSTEP_ASSERT_OK(transport.Agree({}));
      }
    });
  }
}

TEST_P(TransportConformance, AReductionThatWasDroppedIsMadeAnew) {
  RunRanks([&](int rank, Transport& transport) {
    constexpr std::int64_t kElements = 300'000;
    const std::vector<Shard> shards = EvenShards(kElements, world_size());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Arena arena, transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements));
    for (int step = 0; step < 3; ++step) {
      const ArenaShards part = {arena, shards};
      LOCKSTEP_ASSERT_OK(transport.BeginReduction({&part, 1}, 1));
      std::ranges::fill(arena.floats(), std::numeric_limits<float>::quiet_NaN());
      transport.GradientsReady(arena, 0, kElements);
      LOCKSTEP_ASSERT_OK(transport.Agree({}));
      transport.DropReduction();

      std::ranges::fill(arena.floats(), static_cast<float>(step));
      std::vector<float> sums;
      LOCKSTEP_ASSERT_OK(
          transport.ReduceToOwners(arena, shards, EqualWeights(world_size()), Into(sums)));
      EXPECT_THAT(sums, Each(static_cast<float>(step * world_size())));
      LOCKSTEP_ASSERT_OK(transport.Agree({}));
    }
  });
}

TEST_P(TransportConformance, BeginningWithWrongShardsIsAnErrorThatNamesThem) {
  for (const bool twice : {false, true}) {
    std::barrier all_have_it(world_size());  // before the first that fails ends the rest
    EXPECT_THAT(
        Gather([&](int rank, Transport& transport) {
          const auto arena = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 64);
          EXPECT_THAT(arena, IsOk());
          all_have_it.arrive_and_wait();
          std::vector<Shard> shards = EvenShards(64, world_size());
          if (!twice) shards.back().end = 65;
          const ArenaShards parts[] = {{*arena, shards}, {*arena, shards}};
          return transport.BeginReduction(std::span(parts).first(twice ? 2 : 1), 1);
        }),
        Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(twice ? "twice" : "65)"))));
  }
}

}  // namespace
}  // namespace lockstep
