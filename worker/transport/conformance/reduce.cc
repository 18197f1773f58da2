#include "worker/transport/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/tensors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// One of every dtype that `op` reduces.
Tensors HardTensors(ReduceOp op, std::int64_t elements, std::uint64_t seed) {
  Tensors tensors;
  // An odd view in front, so that the others do not start on a round offset.
  tensors.AddHard("odd", DType::kFloat8E5m2, {3}, seed);
  for (const DType dtype : kAllDTypes) {
    if (!IsReducible(dtype, op)) continue;
    tensors.AddHard(std::string(DTypeName(dtype)), dtype, {elements}, seed);
  }
  return tensors;
}

// An all-reduce of all ranks, made before they run: the naive one takes its time.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  std::vector<double> weights;
  std::vector<Tensors> ranks;
  std::vector<Bytes> expected;
};

Reduction MakeReduction(ReduceOp op, const std::vector<double>& weights, int world_size,
                        const std::function<Tensors(int rank)>& make) {
  Reduction reduction = {.op = op, .weights = weights};
  for (int r = 0; r < world_size; ++r) reduction.ranks.push_back(make(r));
  std::vector<const Tensors*> sources;
  for (const Tensors& tensors : reduction.ranks) sources.push_back(&tensors);
  reduction.expected = ExpectedOf(op, weights, sources);
  return reduction;
}

void ExpectReduced(Reduction& reduction, Transport& transport) {
  const Tensors& mine = reduction.ranks[transport.rank()];
  const Transfer transfer = {
      .reduce = reduction.op, .weights = reduction.weights, .views = mine.views()};
  LOCKSTEP_ASSERT_OK(transport.Exchange({&transfer, 1}));
  for (std::size_t i = 0; i < reduction.expected.size(); ++i) {
    EXPECT_TRUE(mine.bytes()[i] == reduction.expected[i])
        << mine.views()[i].spec.ToString() << " " << ReduceOpName(reduction.op);
  }
}

TEST_P(TransportConformance, AllReduceOfEveryDTypeEqualsTheNaiveOneBitForBit) {
  // In a world of one rank nothing moves, and no NaN takes another form.
  if (world_size() < 2) GTEST_SKIP();
  std::vector<Reduction> reductions;
  for (const ReduceOp op : kReduceOps) {
    for (const std::int64_t elements : {1, 257, 2501}) {
      reductions.push_back(MakeReduction(
          op, {}, world_size(), [&](int r) { return HardTensors(op, elements, 50 + r); }));
    }
  }
  RunRanks([&](int rank, Transport& transport) {
    for (Reduction& reduction : reductions) ExpectReduced(reduction, transport);
  });
}

TEST_P(TransportConformance, AllReduceMovesLargeViews) {
  if (world_size() < 2) GTEST_SKIP();
  const auto make = [](int rank) {
    Tensors tensors;
    tensors.AddHard("half", DType::kBfloat16, {kLarge / 100}, rank);
    tensors.AddHard("wide", DType::kFloat64, {kLarge / 30}, rank);
    return tensors;
  };
  std::vector<Reduction> reductions;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    reductions.push_back(MakeReduction(op, {}, world_size(), make));
  }
  RunRanks([&](int rank, Transport& transport) {
    for (Reduction& reduction : reductions) ExpectReduced(reduction, transport);
  });
}

TEST_P(TransportConformance, AMeanOfOneRankChangesNothing) {
  if (world_size() > 1) GTEST_SKIP();
  RunRanks([&](int rank, Transport& transport) {
    Tensors tensors = HardTensors(ReduceOp::kMean, 100, 7);
    const std::vector<double> weights = {3};
    const Transfer mean = {
        .reduce = ReduceOp::kMean, .weights = weights, .views = tensors.views()};
    LOCKSTEP_ASSERT_OK(transport.Exchange({&mean, 1}));
    EXPECT_TRUE(tensors.bytes() == HardTensors(ReduceOp::kMean, 100, 7).bytes());
  });
}

TEST_P(TransportConformance, AMeanIsWeightedAndARankOfWeightZeroContributesNotEvenNaN) {
  if (world_size() < 2) GTEST_SKIP();
  for (int silent = 0; silent < world_size(); ++silent) {
    std::vector<double> weights;
    for (int r = 0; r < world_size(); ++r) weights.push_back(r == silent ? 0 : 0.1 + r);
    Reduction mean = MakeReduction(ReduceOp::kMean, weights, world_size(), [&](int r) {
      Tensors tensors;
      tensors.Add("plain", DType::kFloat32, {4}, 0);
      const std::span<float> plain = tensors.values<float>(0);
      std::fill(plain.begin(), plain.end(),
                r == silent ? std::numeric_limits<float>::quiet_NaN() : 2.0f);
      for (const DType dtype : kAllDTypes) {
        if (!IsReducible(dtype, ReduceOp::kMean)) continue;
        tensors.AddHard(std::string(DTypeName(dtype)), dtype, {300}, 90 + r);
      }
      return tensors;
    });
    RunRanks([&](int rank, Transport& transport) {
      ExpectReduced(mean, transport);
      EXPECT_THAT(mean.ranks[rank].values<float>(0), Each(2.0f));
    });
  }
}

TEST_P(TransportConformance, MinAndMaxKeepNaNFromAnyRank) {
  RunRanks([&](int rank, Transport& transport) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      Tensors tensors;
      tensors.Add("values", DType::kFloat32, {world_size() + 1}, 0);
      std::fill(tensors.values<float>(0).begin(), tensors.values<float>(0).end(), 1.0f);
      tensors.values<float>(0)[rank] = std::numeric_limits<float>::quiet_NaN();
      LOCKSTEP_ASSERT_OK(transport.AllReduce(tensors.views(), op));
      for (int r = 0; r < world_size(); ++r) {
        EXPECT_TRUE(std::isnan(tensors.values<float>(0)[r]));
      }
      EXPECT_EQ(tensors.values<float>(0)[world_size()], 1.0f);
    }
  });
}

TEST_P(TransportConformance, WhatADTypeHasNoMeaningForIsRefusedOnEveryRank) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (IsReducible(dtype, op)) continue;
      const std::vector<absl::Status> statuses = Gather([&](int rank, Transport& transport) {
        Tensors fine = HardTensors(op, 4, rank);
        Tensors odd;
        odd.Add("odd.one", dtype, {4}, rank);
        const std::vector<Transfer> transfers = {{.reduce = op, .views = fine.views()},
                                                 {.reduce = op, .views = odd.views()}};
        const absl::Status status = transport.Exchange(transfers);
        EXPECT_EQ(fine.bytes(), HardTensors(op, 4, rank).bytes());
        return status;
      });
      EXPECT_THAT(
          statuses,
          Each(StatusIs(absl::StatusCode::kInvalidArgument,
                        HasSubstr(absl::StrCat("tensor 'odd.one' is ", DTypeName(dtype),
                                               ", which is not reduced by ", ReduceOpName(op),
                                               "; broadcast it, ")))));
    }
  }
}

TEST_P(TransportConformance, WeightsThatMakeNoMeanAreRefusedOnEveryRank) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> ones(world_size(), 1);
  const auto but_last = [&](double weight) {
    std::vector<double> weights = ones;
    weights.back() = weight;
    return weights;
  };
  const struct {
    std::optional<ReduceOp> reduce;
    std::vector<double> weights;
    std::string named;
  } cases[] = {
      {ReduceOp::kMean, std::vector<double>(world_size() + 1, 1), "weights for"},
      {ReduceOp::kMean, but_last(-1), "is -1; it must be a finite number"},
      {ReduceOp::kMean, but_last(kInfinity), "is inf; it must be a finite number"},
      {ReduceOp::kMean, but_last(-std::nan("")), "nan; it must be a finite number"},
      {ReduceOp::kMean, std::vector<double>(world_size(), 0), "add up to 0"},
      {ReduceOp::kSum, ones, "a sum was given weights"},
      {std::nullopt, ones, "a broadcast was given weights"},
  };
  for (const auto& refused : cases) {
    EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                  Tensors tensors;
                  tensors.Add("a", DType::kFloat32, {6}, rank);
                  const auto before = tensors.bytes();
                  const std::vector<Transfer> transfers = {
                      {.reduce = ReduceOp::kSum, .views = tensors.views()},
                      {.reduce = refused.reduce,
                       .weights = refused.weights,
                       .views = tensors.views()}};
                  const absl::Status status = transport.Exchange(transfers);
                  EXPECT_EQ(tensors.bytes(), before);
                  return status;
                }),
                Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(refused.named))));
  }
}

TEST_P(TransportConformance, AReductionInMemoryThatAllRanksShareIsRefused) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 64));
    const TensorView view = {
        .spec = {.name = "in.arena", .dtype = DType::kFloat32, .shape = {64}},
        .data = arena.data};
    const absl::Status status = transport.AllReduce({&view, 1}, ReduceOp::kMean);
    if (arena.shared) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("in.arena"), HasSubstr("mean"), HasSubstr("a copy"))));
    } else {
      LOCKSTEP_EXPECT_OK(status);
    }
  });
}

TEST_P(TransportConformance, RepeatedRunsAreBitEqual) {
  const auto run = [&] {
    std::vector<std::vector<float>> results(world_size());
    RunRanks([&](int rank, Transport& transport) {
      Tensors tensors;
      tensors.Add("mean", DType::kFloat32, {5000}, 0);
      FillFloats(tensors.values<float>(0), 77 + rank);
      LOCKSTEP_ASSERT_OK(transport.AllReduce(tensors.views(), ReduceOp::kSum));
      const std::span<float> values = tensors.values<float>(0);
      results[rank].assign(values.begin(), values.end());
    });
    return results;
  };
  const std::vector<std::vector<float>> first = run();
  for (int rank = 0; rank < world_size(); ++rank) EXPECT_EQ(first[rank], first[0]);
  EXPECT_EQ(run(), first);
}

}  // namespace
}  // namespace lockstep
