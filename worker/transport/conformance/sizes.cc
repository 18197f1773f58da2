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

std::vector<Bytes> MaximumOf(const std::vector<Tensors>& ranks) {
  std::vector<const Tensors*> sources;
  for (const Tensors& tensors : ranks) sources.push_back(&tensors);
  return ExpectedOf(ReduceOp::kMax, {}, sources);
}

std::vector<std::int64_t> SizesAroundBorders() {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t border : {1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 19}) {
    for (const std::int64_t off : {-17, -8, -1, 0, 1, 8, 17}) sizes.push_back(border + off);
  }
  return sizes;
}

TEST_P(TransportConformance, BroadcastMovesListsOfSizesAroundTheBordersOfMessages) {
  RunRanks([&](int rank, Transport& transport) {
    int root = 0;
    std::vector<std::int64_t> sizes = SizesAroundBorders();
    for (const std::int64_t off : {-1, 0, 1}) sizes.push_back((4 << 20) + off);
    for (const std::int64_t bytes : sizes) {
      root = (root + 1) % world_size();
      Tensors tensors = ListOf(/*first_bytes=*/bytes % 5, bytes, /*seed=*/rank);
      LOCKSTEP_ASSERT_OK(transport.Broadcast(tensors.views(), root));
      EXPECT_TRUE(tensors.bytes() == ListOf(bytes % 5, bytes, root).bytes()) << bytes;
    }
  });
}

TEST_P(TransportConformance, AllReduceMovesListsOfSizesAroundTheBordersOfMessages) {
  // Made before the ranks run: the naive reduction takes its time.
  std::vector<std::vector<Tensors>> lists;  // by size and rank
  std::vector<std::vector<Bytes>> expected;
  for (const std::int64_t bytes : SizesAroundBorders()) {
    std::vector<Tensors> ranks;
    for (int r = 0; r < world_size(); ++r) ranks.push_back(ListOf(bytes % 5, bytes, r));
    expected.push_back(MaximumOf(ranks));
    lists.push_back(std::move(ranks));
  }
  RunRanks([&](int rank, Transport& transport) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      LOCKSTEP_ASSERT_OK(transport.AllReduce(lists[i][rank].views(), ReduceOp::kMax));
      EXPECT_TRUE(lists[i][rank].bytes() == expected[i]) << SizesAroundBorders()[i];
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
    const std::int64_t bytes = prng.Between(1, prng.Below(4) == 0 ? 3'000 : 300'000);
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
  Sequence sequence = RandomSequence(/*seed=*/7, /*count=*/40, world_size());
  RunRanks([&](int rank, Transport& transport) { ExpectSequence(sequence, /*at_once=*/false, transport); });
}

TEST_P(TransportConformance, ManyTransfersFromAlternatingRootsMoveEveryByteInOneExchange) {
  Sequence sequence = RandomSequence(/*seed=*/8, /*count=*/40, world_size());
  RunRanks([&](int rank, Transport& transport) { ExpectSequence(sequence, /*at_once=*/true, transport); });
}

}  // namespace
}  // namespace lockstep
