#include "worker/transport/conformance/conformance.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

TEST_P(TransportConformance, BroadcastMovesEveryByteOfEveryDTypeFromAnyRoot) {
  RunRanks([&](int rank, Transport& transport) {
    for (int root = 0; root < world_size(); ++root) {
      Tensors tensors = OneOfEachDType(/*seed=*/100 + rank);
      LOCKSTEP_ASSERT_OK(transport.Broadcast(tensors.views(), root));
      EXPECT_EQ(tensors.bytes(), OneOfEachDType(100 + root).bytes());
    }
  });
}

TEST_P(TransportConformance, BroadcastMovesLargeAndManyViews) {
  const auto make = [](int seed) {
    Tensors tensors;
    tensors.Add("large", DType::kUint8, {kLarge}, seed);
    for (int i = 0; i < 500; ++i) {
      tensors.Add(absl::StrCat("small", i), i % 2 == 0 ? DType::kFloat64 : DType::kInt8, {i}, seed);
    }
    tensors.Add("wide", DType::kComplex128, {kLarge / 64}, seed);
    return tensors;
  };
  RunRanks([&](int rank, Transport& transport) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      const int root = (world_size() - 1 + repeat) % world_size();
      Tensors tensors = make(rank);
      LOCKSTEP_ASSERT_OK(transport.Broadcast(tensors.views(), root));
      EXPECT_TRUE(tensors.bytes() == make(root).bytes());
    }
  });
}

TEST_P(TransportConformance, BroadcastOfNothingOrEmptyViewsIsFine) {
  RunRanks([&](int rank, Transport& transport) {
    Tensors tensors;
    tensors.Add("empty", DType::kFloat32, {0}, rank);
    LOCKSTEP_EXPECT_OK(transport.Broadcast({}, 0));
    LOCKSTEP_EXPECT_OK(transport.Broadcast(tensors.views(), 0));
    LOCKSTEP_EXPECT_OK(transport.AllReduce({}, ReduceOp::kSum));
    LOCKSTEP_EXPECT_OK(transport.AllReduce(tensors.views(), ReduceOp::kMin));
  });
}

TEST_P(TransportConformance, BroadcastOfViewsInAnArenaReachesEveryRank) {
  RunRanks([&](int rank, Transport& transport) {
    const int root = world_size() - 1;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 1000));
    if (rank == root) FillFloats(arena.floats(), 5);
    Tensors tensors;
    tensors.Add("private", DType::kInt64, {17}, rank);
    std::vector<TensorView> views = {
        {.spec = {.name = "in.arena", .dtype = DType::kFloat32, .shape = {1000}},
         .data = arena.data},
        tensors.views()[0]};
    LOCKSTEP_ASSERT_OK(transport.Broadcast(views, root));
    std::vector<float> expected(1000);
    FillFloats(expected, 5);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arena.floats().begin()));
    Tensors of_root;
    of_root.Add("private", DType::kInt64, {17}, root);
    EXPECT_EQ(tensors.bytes(), of_root.bytes());
    LOCKSTEP_ASSERT_OK(transport.Agree({}));
  });
}

}  // namespace
}  // namespace lockstep
