#include "worker/transport/conformance/conformance.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST_P(TransportConformance, KnowsItsRankAndWorldSize) {
  RunRanks([&](int rank, Transport& transport) {
    EXPECT_EQ(transport.rank(), rank);
    EXPECT_EQ(transport.world_size(), world_size());
  });
}

TEST_P(TransportConformance, AgreeCombinesTheWordsOfAllRanks) {
  RunRanks([&](int rank, Transport& transport) {
    for (int step = 0; step < 50; ++step) {
      const int late = step % world_size();
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const Agreement agreement,
          transport.Agree({.step = step,
                           .log_number = rank == late ? step : step + 5,
                           .samples = rank + 1,
                           .weight = 0.5f * static_cast<float>(rank + 1),
                           .not_finite = step % 3 == 0 && rank == late ? 9 : kAllFinite}));
      EXPECT_EQ(agreement.log_number, LogNumber(step));
      EXPECT_EQ(agreement.samples, world_size() * (world_size() + 1) / 2);
      EXPECT_EQ(agreement.finite, step % 3 != 0);
      ASSERT_EQ(agreement.weights.size(), static_cast<std::size_t>(world_size()));
      EXPECT_EQ(agreement.weights.back(), 0.5f * static_cast<float>(world_size()));
    }
  });
}

TEST_P(TransportConformance, AgreeAtDifferentStepsIsAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Agree({.step = rank == 1 ? 8 : 7}).status();
              }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("step 8 on w1 (rank 1)"))));
}

void AddPair(Tensors& tensors, int seed) {
  tensors.Add("a", DType::kFloat32, {6}, seed);
  tensors.Add("b", DType::kFloat32, {4, 2}, seed);
}

struct Mismatch {
  std::string what;
  std::function<void(Tensors&, int seed)> make;  // the last rank's tensors
  std::string named;
};

const Mismatch kMismatches[] = {
    {"name",
     [](Tensors& tensors, int seed) {
       tensors.Add("a", DType::kFloat32, {6}, seed);
       tensors.Add("c", DType::kFloat32, {4, 2}, seed);
     },
     "tensor 'b': float32[4, 2]"},
    {"shape",
     [](Tensors& tensors, int seed) {
       tensors.Add("a", DType::kFloat32, {6}, seed);
       tensors.Add("b", DType::kFloat32, {2, 4}, seed);
     },
     "tensor 'b': float32[4, 2]"},
    {"dtype",
     [](Tensors& tensors, int seed) {
       tensors.Add("a", DType::kInt32, {6}, seed);
       tensors.Add("b", DType::kFloat32, {4, 2}, seed);
     },
     "tensor 'a': float32[6]"},
    {"count",
     [](Tensors& tensors, int seed) { tensors.Add("a", DType::kFloat32, {6}, seed); },
     "tensor 'b': float32[4, 2]"},
    {"none", [](Tensors&, int) {}, "tensor 'a': float32[6]"},
    {"order",
     [](Tensors& tensors, int seed) {
       tensors.Add("b", DType::kFloat32, {4, 2}, seed);
       tensors.Add("a", DType::kFloat32, {6}, seed);
     },
     "order of tensors"},
};

TEST_P(TransportConformance, ADifferentLayoutIsAnErrorOnEveryRankAndTouchesNothing) {
  if (world_size() < 2) GTEST_SKIP();
  const int last = world_size() - 1;
  for (const bool reduce : {false, true}) {
    for (const Mismatch& mismatch : kMismatches) {
      const std::vector<absl::Status> statuses = Gather([&](int rank, Transport& transport) {
        Tensors tensors;
        (rank == last ? mismatch.make : AddPair)(tensors, rank);
        const auto before = tensors.bytes();
        const absl::Status status = reduce
                                        ? transport.AllReduce(tensors.views(), ReduceOp::kSum)
                                        : transport.Broadcast(tensors.views(), 0);
        EXPECT_EQ(tensors.bytes(), before) << mismatch.what;
        return status;
      });
      EXPECT_THAT(statuses,
                  Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr(mismatch.named), HasSubstr("w0 (rank 0)"),
                                      HasSubstr(absl::StrCat("w", last, " (rank ", last, ")"))))))
          << mismatch.what;
    }
  }
}

TEST_P(TransportConformance, ADisagreementOnTheSecondTransferLeavesTheFirstUntouched) {
  if (world_size() < 2) GTEST_SKIP();
  const int last = world_size() - 1;
  for (const Mismatch& mismatch : kMismatches) {
    EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                  Tensors first = OneOfEachDType(rank);
                  Tensors second;
                  (rank == last ? mismatch.make : AddPair)(second, rank);
                  const auto before = second.bytes();
                  const std::vector<Transfer> transfers = {
                      {.views = first.views()},
                      {.reduce = ReduceOp::kMax, .views = second.views()}};
                  const absl::Status status = transport.Exchange(transfers);
                  EXPECT_TRUE(first.bytes() == OneOfEachDType(rank).bytes()) << mismatch.what;
                  EXPECT_EQ(second.bytes(), before) << mismatch.what;
                  return status;
                }),
                Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(mismatch.named))))
        << mismatch.what;
  }
}

TEST_P(TransportConformance, ADifferentMannerOfATransferIsNamedOnEveryRankAndTouchesNothing) {
  if (world_size() < 2) GTEST_SKIP();
  const int last = world_size() - 1;
  std::vector<double> weights(world_size(), 1);
  weights[0] = 0.1;
  std::vector<double> other_weights = weights;
  other_weights[last] = 1 + 0x1p-52;
  const Transfer broadcast = {.root = 0};
  const struct {
    std::vector<Transfer> of_others;
    std::vector<Transfer> of_last;
    std::string named;
    std::string named_of_last;
  } cases[] = {
      {{broadcast, broadcast},
       {broadcast, {.root = 1}},
       "tensor 'second': float32[3] by broadcast from rank 0 on w0 (rank 0)",
       "float32[3] by broadcast from rank 1 on "},
      {{broadcast, {.reduce = ReduceOp::kSum}},
       {broadcast, {.reduce = ReduceOp::kMean}},
       "tensor 'second': float32[3] by sum on w0 (rank 0)",
       "float32[3] by mean on "},
      {{broadcast, {.reduce = ReduceOp::kMin}},
       {broadcast, {.root = 1}},
       "tensor 'second': float32[3] by min on w0 (rank 0)",
       "float32[3] by broadcast from rank 1 on "},
      {{broadcast, {.reduce = ReduceOp::kMean, .weights = weights}},
       {broadcast, {.reduce = ReduceOp::kMean, .weights = other_weights}},
       "tensor 'second': float32[3] by mean weighted by 0.1, 1",
       "1.0000000000000002 on "},
      {{broadcast, {.reduce = ReduceOp::kMean, .weights = weights}},
       {broadcast, {.reduce = ReduceOp::kMean}},
       "tensor 'second': float32[3] by mean weighted by 0.1, 1",
       "float32[3] by mean on "},
      // The first one is not reached by a comparison of the last alone.
      {{{.reduce = ReduceOp::kMin}, broadcast},
       {{.reduce = ReduceOp::kMax}, broadcast},
       "tensor 'first': float32[6] by min on w0 (rank 0)",
       "float32[6] by max on "},
      {{broadcast, broadcast, {.root = 0}},
       {broadcast, broadcast, {.root = 1}},
       "'(transfer 3)': 0 tensors by broadcast from rank 0 on w0 (rank 0)",
       "0 tensors by broadcast from rank 1 on "},
      {{broadcast, broadcast},
       {broadcast, broadcast, broadcast},
       "'(transfer 3)': absent on w0 (rank 0)",
       "0 tensors by broadcast from rank 0 on "},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                  Tensors first;
                  first.Add("first", DType::kFloat32, {6}, rank);
                  Tensors second;
                  second.Add("second", DType::kFloat32, {3}, rank);
                  const auto before = first.bytes();
                  std::vector<Transfer> transfers = rank == last ? c.of_last : c.of_others;
                  transfers[0].views = first.views();
                  transfers[1].views = second.views();
                  const absl::Status status = transport.Exchange(transfers);
                  EXPECT_EQ(first.bytes(), before);
                  return status;
                }),
                Each(StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr(c.named),
                                    HasSubstr(absl::StrCat(c.named_of_last, "w", last, " (rank ",
                                                           last, ")"))))));
  }
}

TEST_P(TransportConformance, TensorsThatAreSplitIntoOtherTransfersAreAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                Tensors tensors;
                AddPair(tensors, rank);
                const auto before = tensors.bytes();
                std::vector<Transfer> transfers = {{.views = tensors.views()}};
                if (rank == 1) {
                  transfers = {{.views = tensors.views().first(1)},
                               {.views = tensors.views().subspan(1)}};
                }
                const absl::Status status = transport.Exchange(transfers);
                EXPECT_EQ(tensors.bytes(), before);
                return status;
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("1 tensors by broadcast from rank 0 on w1 (rank 1)"))));
}

// What lies in memory that all ranks share is not moved: a rank that has it elsewhere
// would wait in vain.
TEST_P(TransportConformance, ATensorThatLiesElsewhereInSharedMemoryIsAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  for (const bool apart : {false, true}) {
    RunRanks([&](int rank, Transport& transport) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                    transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 64));
      std::vector<float> own(16);
      const std::span<float> values = arena.floats();
      float* const second = rank != 1 ? &values[16] : apart ? own.data() : &values[32];
      const TensorSpec spec = {.dtype = DType::kFloat32, .shape = {16}};
      std::vector<TensorView> views = {{spec, arena.data},
                                       {spec, reinterpret_cast<std::byte*>(second)}};
      views[0].spec.name = "first";
      views[1].spec.name = "second";
      const absl::Status status = transport.Broadcast(views, 0);
      if (!arena.shared) {
        LOCKSTEP_EXPECT_OK(status);
        return;
      }
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("'second'"), HasSubstr("in arena 0 at byte 64"),
                                         HasSubstr("w1 (rank 1)"))));
    });
  }
}

TEST_P(TransportConformance, DifferentShardsOrSizesAreAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport
                    .Allocate(ArenaUse::kGradients, DType::kFloat32, rank == 1 ? 17 : 16)
                    .status();
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("float32[17] on w1 (rank 1)"))));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                const absl::StatusOr<Arena> arena =
                    transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 64);
                if (!arena.ok()) return arena.status();
                std::vector<Shard> shards(world_size(), Shard{64, 64});
                shards[0] = {0, rank == 1 ? 48 : 64};
                return transport.ReduceToOwners(*arena, shards, EqualWeights(world_size()), Ignore);
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("[0, 48) on w1 (rank 1)"))));
}

TEST_P(TransportConformance, BadArgumentsAreErrorsOnEveryRank) {
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                Tensors tensors;
                tensors.Add("a", DType::kFloat32, {6}, rank);
                return transport.Broadcast(tensors.views(), world_size());
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("root"))));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                std::vector<float> values(16);
                return transport.BroadcastFromOwners(
                    {.data = reinterpret_cast<std::byte*>(values.data()), .elements = 16},
                    std::vector<Shard>(world_size(), Shard{0, 0}));
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("arena"))));
  for (const Shard& shard : {Shard{0, 65}, Shard{-1, 3}, Shard{9, 3}}) {
    EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                  const absl::StatusOr<Arena> arena =
                      transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 64);
                  if (!arena.ok()) return arena.status();
                  return transport.ReduceToOwners(*arena, std::vector<Shard>(world_size(), shard),
                                                  EqualWeights(world_size()), Ignore);
                }),
                Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shard"))));
  }
}

TEST_P(TransportConformance, DifferentOperationsAreAnErrorOnEveryRankAndTouchNothing) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                if (rank == 1) return transport.Agree({}).status();
                Tensors tensors = OneOfEachDType(rank);
                const absl::Status status = transport.Broadcast(tensors.views(), 0);
                EXPECT_EQ(tensors.bytes(), OneOfEachDType(rank).bytes());
                return status;
              }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("exchange on w0 (rank 0)"),
                                  HasSubstr("agree on w1 (rank 1)")))));
}

}  // namespace
}  // namespace lockstep
