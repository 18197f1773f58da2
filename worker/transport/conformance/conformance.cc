#include "worker/transport/conformance/conformance.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr DType kAllDTypes[] = {
    DType::kBool,        DType::kInt8,           DType::kInt16,          DType::kInt32,
    DType::kInt64,       DType::kUint8,          DType::kUint16,         DType::kUint32,
    DType::kUint64,      DType::kFloat16,        DType::kBfloat16,       DType::kFloat32,
    DType::kFloat64,     DType::kComplex32,      DType::kComplex64,      DType::kComplex128,
    DType::kFloat8E4m3fn, DType::kFloat8E5m2,    DType::kFloat8E4m3fnuz, DType::kFloat8E5m2fnuz,
    DType::kFloat8E8m0fnu};

// Several times what a transport moves in one message. Sanitizers are slow.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kLarge = 1'200'003;
#else
constexpr int kLarge = 5'000'003;
#endif

// How long after its deadline a wait may end on a busy host, by transports that
// ask around who is missing.
constexpr absl::Duration kGrace = absl::Seconds(5);

// Closed until a number of threads have passed by.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mu_);
    ++passed_;
    changed_.SignalAll();
  }
  void Await(int count) {
    MutexLock lock(&mu_);
    EXPECT_TRUE(changed_.AwaitFor(&mu_, absl::Seconds(60), [&] { return passed_ >= count; }));
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int passed_ ABSL_GUARDED_BY(mu_) = 0;
};

// Tensors that own their memory, with a guard behind each that must not change.
class Tensors {
 public:
  // The bytes are drawn from `seed`.
  void Add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::uint64_t seed) {
    TensorSpec spec = {.name = name, .dtype = dtype, .shape = std::move(shape)};
    std::vector<std::byte> data(spec.bytes() + kGuard, std::byte{0xab});
    Prng prng(seed * 1000003 + views_.size());
    for (std::int64_t i = 0; i < spec.bytes(); i += 8) {
      std::uint64_t drawn = prng.Next();
      if (dtype == DType::kBool) drawn &= 0x0101010101010101u;
      std::memcpy(&data[i], &drawn, std::min<std::int64_t>(8, spec.bytes() - i));
    }
    storage_.push_back(std::move(data));
    views_.push_back({.spec = std::move(spec), .data = storage_.back().data()});
  }

  template <typename T>
  std::span<T> values(int index) {
    return {reinterpret_cast<T*>(storage_[index].data()),
            static_cast<std::size_t>(views_[index].spec.elements())};
  }

  std::span<const TensorView> views() const { return views_; }
  std::vector<TensorView>& mutable_views() { return views_; }
  // All bytes, guards included.
  const std::vector<std::vector<std::byte>>& bytes() const { return storage_; }

 private:
  static constexpr int kGuard = 32;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorView> views_;
};

Tensors OneOfEachDType(std::uint64_t seed) {
  Tensors tensors;
  for (const DType dtype : kAllDTypes) {
    tensors.Add(std::string(DTypeName(dtype)), dtype, {3, 7}, seed);
  }
  tensors.Add("scalar", DType::kInt64, {}, seed);
  tensors.Add("empty", DType::kFloat32, {0, 5}, seed);
  return tensors;
}

// Values with a wide range of magnitudes, so that the order of a sum shows.
void FillFloats(std::span<float> values, std::uint64_t seed) {
  Prng prng(seed);
  for (float& value : values) {
    constexpr float kScales[] = {1e-4f, 1e-2f, 1, 1e2f, 1e4f};
    value = static_cast<float>(prng.Unit() - 0.5) * kScales[prng.Below(5)];
  }
}

std::vector<Shard> EvenShards(std::int64_t elements, int world_size) {
  std::vector<Shard> shards;
  for (int r = 0; r < world_size; ++r) {
    shards.push_back({elements * r / world_size / 16 * 16,
                      r + 1 == world_size ? elements
                                          : elements * (r + 1) / world_size / 16 * 16});
  }
  return shards;
}

TEST_P(TransportConformance, KnowsItsRankAndWorldSize) {
  RunRanks([&](int rank, Transport& transport) {
    EXPECT_EQ(transport.rank(), rank);
    EXPECT_EQ(transport.world_size(), world_size());
  });
}

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

template <typename T>
T NaiveReduce(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return b > a ? b : a;
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else {
    return static_cast<T>(a + b);
  }
}

// Small values, so that integers do not overflow, of both signs where there are.
template <typename T>
T ValueAt(int rank, std::int64_t i) {
  const std::uint64_t drawn = Prng(rank * 7919 + i).Below(60);
  if constexpr (std::is_same_v<T, bool>) return drawn % 3 == 0;
  if constexpr (std::is_unsigned_v<T>) return static_cast<T>(drawn);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(drawn) / 7 - 4;
  return static_cast<T>(static_cast<int>(drawn) - 30);
}

template <typename T>
void ExpectAllReduce(Transport& transport, DType dtype, ReduceOp op, std::int64_t elements) {
  Tensors tensors;
  // An odd view in front, so that the other does not start on a round offset.
  tensors.Add("odd", DType::kInt8, {3}, 0);
  tensors.Add("values", dtype, {elements}, 0);
  for (std::int8_t& value : tensors.values<std::int8_t>(0)) value = 1;
  for (std::int64_t i = 0; i < elements; ++i) {
    tensors.values<T>(1)[i] = ValueAt<T>(transport.rank(), i);
  }
  const std::vector<std::byte> guard(tensors.bytes()[1].end() - 32, tensors.bytes()[1].end());
  LOCKSTEP_ASSERT_OK(transport.AllReduce(tensors.views(), op));

  const int size = transport.world_size();
  EXPECT_THAT(tensors.values<std::int8_t>(0), Each(op == ReduceOp::kSum ? size : 1));
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    T expected = ValueAt<T>(0, i);
    for (int r = 1; r < size; ++r) expected = NaiveReduce<T>(op, expected, ValueAt<T>(r, i));
    if (tensors.values<T>(1)[i] != expected) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << DTypeName(dtype) << " op " << static_cast<int>(op);
  EXPECT_TRUE(std::equal(guard.begin(), guard.end(), tensors.bytes()[1].end() - 32));
}

TEST_P(TransportConformance, AllReduceEqualsTheNaiveOneInRankOrder) {
  RunRanks([&](int rank, Transport& transport) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      ExpectAllReduce<bool>(transport, DType::kBool, op, 257);
      ExpectAllReduce<std::int8_t>(transport, DType::kInt8, op, 257);
      ExpectAllReduce<std::int16_t>(transport, DType::kInt16, op, 257);
      ExpectAllReduce<std::int32_t>(transport, DType::kInt32, op, 257);
      ExpectAllReduce<std::int64_t>(transport, DType::kInt64, op, 257);
      ExpectAllReduce<std::uint8_t>(transport, DType::kUint8, op, 257);
      ExpectAllReduce<std::uint16_t>(transport, DType::kUint16, op, 257);
      ExpectAllReduce<std::uint32_t>(transport, DType::kUint32, op, 257);
      ExpectAllReduce<std::uint64_t>(transport, DType::kUint64, op, 257);
      ExpectAllReduce<float>(transport, DType::kFloat32, op, 257);
      ExpectAllReduce<double>(transport, DType::kFloat64, op, 257);
      ExpectAllReduce<double>(transport, DType::kFloat64, op, kLarge / 16);
    }
  });
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

TEST_P(TransportConformance, AllReduceRefusesWhatItCannotComputeWith) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kComplex64,
                            DType::kComplex128, DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
    const std::vector<absl::Status> statuses = Gather([&](int rank, Transport& transport) {
      Tensors tensors;
      tensors.Add("fine", DType::kFloat32, {4}, rank);
      tensors.Add("odd.one", dtype, {4}, rank);
      const auto before = tensors.bytes();
      const absl::Status status = transport.AllReduce(tensors.views(), ReduceOp::kSum);
      EXPECT_EQ(tensors.bytes(), before);
      return status;
    });
    EXPECT_THAT(statuses,
                Each(StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("odd.one"),
                                    HasSubstr(std::string(DTypeName(dtype)))))));
  }
}

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

TEST_P(TransportConformance, BroadcastOfViewsInAnArenaReachesEveryRank) {
  RunRanks([&](int rank, Transport& transport) {
    const int root = world_size() - 1;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kParameters, 1000));
    if (rank == root) FillFloats(arena.values, 5);
    Tensors tensors;
    tensors.Add("private", DType::kInt64, {17}, rank);
    std::vector<TensorView> views = {
        {.spec = {.name = "in.arena", .dtype = DType::kFloat32, .shape = {1000}},
         .data = reinterpret_cast<std::byte*>(arena.values.data())},
        tensors.views()[0]};
    LOCKSTEP_ASSERT_OK(transport.Broadcast(views, root));
    std::vector<float> expected(1000);
    FillFloats(expected, 5);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arena.values.begin()));
    Tensors of_root;
    of_root.Add("private", DType::kInt64, {17}, root);
    EXPECT_EQ(tensors.bytes(), of_root.bytes());
    LOCKSTEP_ASSERT_OK(transport.Agree({}));
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
                           .finite = step % 3 == 0 && rank == late ? 0 : 1,
                           .squared_norm = 0.5 * rank}));
      EXPECT_EQ(agreement.log_number, LogNumber(step));
      EXPECT_EQ(agreement.samples, world_size() * (world_size() + 1) / 2);
      EXPECT_EQ(agreement.finite, step % 3 != 0);
      EXPECT_EQ(agreement.squared_norm, 0.25 * world_size() * (world_size() - 1));
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

struct Mismatch {
  std::string what;
  std::function<void(Tensors&, int seed)> make;  // the last rank's tensors
  int root = 0;
  std::string named;
};

TEST_P(TransportConformance, ADifferentLayoutIsAnErrorOnEveryRankAndTouchesNothing) {
  if (world_size() < 2) GTEST_SKIP();
  const auto make = [](Tensors& tensors, int seed) {
    tensors.Add("a", DType::kFloat32, {6}, seed);
    tensors.Add("b", DType::kFloat32, {4, 2}, seed);
  };
  const std::vector<Mismatch> mismatches = {
      {"name",
       [](Tensors& tensors, int seed) {
         tensors.Add("a", DType::kFloat32, {6}, seed);
         tensors.Add("c", DType::kFloat32, {4, 2}, seed);
       },
       0, "tensor 'b': float32[4, 2] on w0 (rank 0)"},
      {"shape",
       [](Tensors& tensors, int seed) {
         tensors.Add("a", DType::kFloat32, {6}, seed);
         tensors.Add("b", DType::kFloat32, {2, 4}, seed);
       },
       0, "tensor 'b': float32[4, 2] on w0 (rank 0)"},
      {"dtype",
       [](Tensors& tensors, int seed) {
         tensors.Add("a", DType::kInt32, {6}, seed);
         tensors.Add("b", DType::kFloat32, {4, 2}, seed);
       },
       0, "tensor 'a': float32[6] on w0 (rank 0)"},
      {"count",
       [](Tensors& tensors, int seed) { tensors.Add("a", DType::kFloat32, {6}, seed); }, 0,
       "tensor 'b': float32[4, 2] on w0 (rank 0)"},
      {"none", [](Tensors&, int) {}, 0, "tensor 'a': float32[6] on w0 (rank 0)"},
      {"order",
       [](Tensors& tensors, int seed) {
         tensors.Add("b", DType::kFloat32, {4, 2}, seed);
         tensors.Add("a", DType::kFloat32, {6}, seed);
       },
       0, "'a' on w0 (rank 0)"},
      {"root", make, 1, "float32[6] by broadcast from rank 0 on w0 (rank 0)"},
  };
  const int last = world_size() - 1;
  for (const bool reduce : {false, true}) {
    for (const Mismatch& mismatch : mismatches) {
      if (reduce && mismatch.what == "root") continue;
      const std::vector<absl::Status> statuses = Gather([&](int rank, Transport& transport) {
        Tensors tensors;
        (rank == last ? mismatch.make : make)(tensors, rank);
        const auto before = tensors.bytes();
        const absl::Status status =
            reduce ? transport.AllReduce(tensors.views(), ReduceOp::kSum)
                   : transport.Broadcast(tensors.views(), rank == last ? mismatch.root : 0);
        EXPECT_EQ(tensors.bytes(), before) << mismatch.what;
        return status;
      });
      EXPECT_THAT(statuses,
                  Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr(mismatch.named),
                                      HasSubstr(absl::StrCat("w", last, " (rank ", last, ")"))))))
          << mismatch.what;
    }
  }
}

TEST_P(TransportConformance, DifferentShardsOrSizesAreAnErrorOnEveryRank) {
  if (world_size() < 2) GTEST_SKIP();
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                return transport.Allocate(ArenaUse::kGradients, rank == 1 ? 17 : 16).status();
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("float32[17] on w1 (rank 1)"))));
  EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                const absl::StatusOr<Arena> arena =
                    transport.Allocate(ArenaUse::kGradients, 64);
                if (!arena.ok()) return arena.status();
                std::vector<Shard> shards(world_size(), Shard{64, 64});
                shards[0] = {0, rank == 1 ? 48 : 64};
                return transport.ReduceToOwners(*arena, shards, 1.0f);
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
                    {.values = values}, std::vector<Shard>(world_size(), Shard{0, 0}));
              }),
              Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("arena"))));
  for (const Shard& shard : {Shard{0, 65}, Shard{-1, 3}, Shard{9, 3}}) {
    EXPECT_THAT(Gather([&](int rank, Transport& transport) {
                  const absl::StatusOr<Arena> arena =
                      transport.Allocate(ArenaUse::kGradients, 64);
                  if (!arena.ok()) return arena.status();
                  return transport.ReduceToOwners(*arena,
                                                  std::vector<Shard>(world_size(), shard), 1.0f);
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

TEST_P(TransportConformance, AMissingRankIsNamedWithinTheDeadline) {
  if (world_size() < 2) GTEST_SKIP();
  const int missing = world_size() - 1;
  const absl::Duration deadline = absl::Milliseconds(400);
  // The missing rank is there until the others are through, and does nothing.
  Gate through;
  std::vector<absl::Duration> took(world_size());
  const std::vector<absl::Status> statuses = Gather(
      [&](int rank, Transport& transport) {
        if (rank == missing) {
          through.Await(world_size() - 1);
          return absl::OkStatus();
        }
        Tensors tensors = OneOfEachDType(rank);
        const absl::Time start = absl::Now();
        const absl::Status status = transport.Broadcast(tensors.views(), 0);
        took[rank] = absl::Now() - start;
        EXPECT_EQ(tensors.bytes(), OneOfEachDType(rank).bytes());
        EXPECT_THAT(transport.Agree({}), StatusIs(absl::StatusCode::kAborted));
        through.Pass();
        return status;
      },
      deadline);
  for (int r = 0; r < missing; ++r) {
    EXPECT_THAT(statuses[r],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr(absl::StrCat("w", missing, " (rank ", missing, ")"))));
    EXPECT_LT(took[r], deadline + kGrace);
  }
}

TEST_P(TransportConformance, AbortFromAnotherThreadFreesTheWaiter) {
  if (world_size() < 2) GTEST_SKIP();
  const int waiting = world_size() - 1;
  Gate freed;
  const absl::Time start = absl::Now();
  RunRanks([&](int rank, Transport& transport) {
    if (rank != waiting) {
      freed.Await(1);
      return;
    }
    std::thread aborter([&] {
      // Most likely while the other waits; either order must free it.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      transport.Abort(absl::UnavailableError("the epoch ended"));
      transport.Abort(absl::InternalError("again"));
    });
    EXPECT_THAT(transport.Agree({}),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended")));
    aborter.join();
    Tensors tensors = OneOfEachDType(rank);
    EXPECT_THAT(transport.Broadcast(tensors.views(), 0),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("the epoch ended")));
    freed.Pass();
  });
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_P(TransportConformance, AfterAnErrorEveryLaterCallFails) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kGradients, 64));
    const std::vector<Shard> shards = EvenShards(64, world_size());
    Tensors tensors;
    tensors.Add("half.precision", DType::kFloat16, {6}, rank);
    ASSERT_THAT(transport.AllReduce(tensors.views(), ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument));
    const auto dead = StatusIs(absl::StatusCode::kAborted, HasSubstr("half.precision"));
    EXPECT_THAT(transport.Broadcast(tensors.views(), 0), dead);
    EXPECT_THAT(transport.AllReduce(tensors.views(), ReduceOp::kSum), dead);
    EXPECT_THAT(transport.Allocate(ArenaUse::kGradients, 1), dead);
    EXPECT_THAT(transport.ReduceToOwners(arena, shards, 1), dead);
    EXPECT_THAT(transport.BroadcastFromOwners(arena, shards), dead);
    EXPECT_THAT(transport.Agree({}), dead);
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

TEST_P(TransportConformance, OperationsOfAllKindsMixInAnyOrder) {
  RunRanks([&](int rank, Transport& transport) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Arena arena,
                                  transport.Allocate(ArenaUse::kGradients, 3000));
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
          std::fill(arena.values.begin(), arena.values.end(), 1.0f);
          LOCKSTEP_ASSERT_OK(transport.ReduceToOwners(arena, shards, 1.0f));
          for (std::int64_t k = shards[rank].begin; k < shards[rank].end; ++k) {
            ASSERT_EQ(arena.values[k], static_cast<float>(world_size()));
          }
          LOCKSTEP_ASSERT_OK(transport.BroadcastFromOwners(arena, shards));
          ASSERT_THAT(arena.values, Each(static_cast<float>(world_size())));
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
