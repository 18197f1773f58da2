// Lists of sizes at which transports cut differently, and many operations in a
// row, whose messages reuse what memory a transport has for them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

// A first view that shifts the second, which has the rest of `bytes`.
Tensors ListOf(std::int64_t first_bytes, std::int64_t bytes, std::uint64_t seed) {
  Tensors tensors;
  tensors.Add("first", DType::kUint8, {std::min(first_bytes, bytes)}, seed);
  tensors.Add("rest", DType::kUint8, {std::max<std::int64_t>(bytes - first_bytes, 0)}, seed);
  return tensors;
}

// Of bytes; guards are equal on all ranks.
std::vector<Bytes> MaximumOf(const std::vector<Tensors>& ranks) {
  std::vector<Bytes> maximum = ranks[0].bytes();
  for (const Tensors& tensors : ranks) {
    for (std::size_t i = 0; i < maximum.size(); ++i) {
      std::ranges::transform(maximum[i], tensors.bytes()[i], maximum[i].begin(),
                             [](std::byte a, std::byte b) { return std::max(a, b); });
    }
  }
  return maximum;
}

std::vector<std::int64_t> SizesAroundBorders() {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t border : {1 << 14, 1 << 16, 1 << 19}) {
    for (const std::int64_t off : {-1, 0, 1, 17}) sizes.push_back(border + off);
  }
  return sizes;
}

// By size and rank; made before the ranks run, as drawing them takes its time.
std::vector<std::vector<Tensors>> ListsOf(const std::vector<std::int64_t>& sizes, int world_size) {
  std::vector<std::vector<Tensors>> lists;
  for (const std::int64_t bytes : sizes) {
    std::vector<Tensors> ranks;
    for (int r = 0; r < world_size; ++r) ranks.push_back(ListOf(bytes % 5, bytes, r));
    lists.push_back(std::move(ranks));
  }
  return lists;
}

TEST_P(TransportConformance, BroadcastMovesListsOfSizesAroundTheBordersOfMessages) {
  const std::vector<std::int64_t> sizes = SizesAroundBorders();
  std::vector<std::vector<Tensors>> lists = ListsOf(sizes, world_size());
  const auto root_of = [&](std::size_t i) { return static_cast<int>(i) % world_size(); };
  std::vector<std::vector<Bytes>> expected;
  for (std::size_t i = 0; i < lists.size(); ++i) expected.push_back(lists[i][root_of(i)].bytes());
  RunRanks([&](int rank, Transport& transport) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      LOCKSTEP_ASSERT_OK(transport.Broadcast(lists[i][rank].views(), root_of(i)));
      EXPECT_TRUE(lists[i][rank].bytes() == expected[i]) << sizes[i];
    }
  });
}

TEST_P(TransportConformance, AllReduceMovesListsOfSizesAroundTheBordersOfMessages) {
  const std::vector<std::int64_t> sizes = SizesAroundBorders();
  std::vector<std::vector<Tensors>> lists = ListsOf(sizes, world_size());
  std::vector<std::vector<Bytes>> expected;
  for (const std::vector<Tensors>& ranks : lists) expected.push_back(MaximumOf(ranks));
  RunRanks([&](int rank, Transport& transport) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      LOCKSTEP_ASSERT_OK(transport.AllReduce(lists[i][rank].views(), ReduceOp::kMax));
      EXPECT_TRUE(lists[i][rank].bytes() == expected[i]) << sizes[i];
    }
  });
}

// Transfers whose manners and sizes are drawn from one seed: the lists of
// all ranks, and what each must be.
struct Sequence {
  std::vector<Transfer> manners;
  std::vector<std::vector<Tensors>> ranks;  // by transfer
  std::vector<std::vector<Bytes>> expected;
};

Sequence RandomSequence(std::uint64_t seed, int count, int world_size) {
  Prng prng(seed);
  Sequence sequence;
  for (int i = 0; i < count; ++i) {
    const bool reduces = prng.Below(3) == 0;
    const std::int64_t bytes = prng.Between(1, prng.Below(4) == 0 ? 3'000 : 250'000);
    std::vector<Tensors> ranks;
    for (int r = 0; r < world_size; ++r) {
      ranks.push_back(ListOf(bytes % 11, bytes, seed * 1000 + i * world_size + r));
    }
    Transfer manner;
    if (reduces) {
      manner.reduce = ReduceOp::kMax;
    } else {
      manner.root = static_cast<int>(prng.Below(world_size));
    }
    sequence.expected.push_back(reduces ? MaximumOf(ranks) : ranks[manner.root].bytes());
    sequence.manners.push_back(std::move(manner));
    sequence.ranks.push_back(std::move(ranks));
  }
  return sequence;
}

// `at_once`: all in one exchange, in which the ranks meet once, at its start.
void ExpectSequence(Sequence& sequence, bool at_once, Transport& transport) {
  std::vector<Transfer> transfers = sequence.manners;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    transfers[i].views = sequence.ranks[i][transport.rank()].views();
  }
  const std::size_t stride = at_once ? transfers.size() : 1;
  for (std::size_t i = 0; i < transfers.size(); i += stride) {
    LOCKSTEP_ASSERT_OK(transport.Exchange(std::span(transfers).subspan(i, stride)));
  }
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    EXPECT_TRUE(sequence.ranks[i][transport.rank()].bytes() == sequence.expected[i]) << "transfer " << i;
  }
}

TEST_P(TransportConformance, ManyOperationsInARowFromAlternatingRootsMoveEveryByte) {
  Sequence sequence = RandomSequence(/*seed=*/7, /*count=*/25, world_size());
  RunRanks([&](int rank, Transport& transport) { ExpectSequence(sequence, /*at_once=*/false, transport); });
}

TEST_P(TransportConformance, ManyTransfersFromAlternatingRootsMoveEveryByteInOneExchange) {
  Sequence sequence = RandomSequence(/*seed=*/8, /*count=*/25, world_size());
  RunRanks([&](int rank, Transport& transport) { ExpectSequence(sequence, /*at_once=*/true, transport); });
}

}  // namespace
}  // namespace lockstep
