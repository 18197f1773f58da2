#include "worker/combine/combine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "gtest/gtest.h"
#include "worker/combine/naive_reduce.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of one element of each rank, as its type's bits.
template <typename T>
T ReduceOne(DType dtype, ReduceOp op, const std::vector<T>& elements,
            const std::vector<double>& weights = {}) {
  std::vector<const std::byte*> sources;
  for (const T& element : elements) sources.push_back(reinterpret_cast<const std::byte*>(&element));
  T result;
  Reduce(dtype, op, weights, sources, reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

std::vector<std::uint16_t> Halves(std::vector<std::uint16_t> codes) { return codes; }
std::vector<std::uint8_t> Codes(std::vector<std::uint8_t> codes) { return codes; }

TEST(Reduce, EqualsTheNaiveOneBitForBitAlsoWhereMemoryIsUnaligned) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!IsReducible(dtype, op)) continue;
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        Prng prng(seed);
        const int ranks = 1 + static_cast<int>(prng.Below(5));
        const std::int64_t elements = prng.Between(0, seed % 4 == 0 ? 5000 : 300);
        const std::int64_t bytes = elements * ElementBytes(dtype);
        std::vector<double> weights;
        if (op == ReduceOp::kMean && seed % 2 == 0) {
          for (int r = 0; r < ranks; ++r) weights.push_back(prng.Below(3) * 0.7);
          weights[prng.Below(ranks)] = 0.25;
        }
        std::vector<Bytes> plain;
        std::vector<Bytes> shifted;  // by an odd number of bytes
        std::vector<const std::byte*> sources;
        for (int r = 0; r < ranks; ++r) {
          plain.emplace_back(bytes);
          FillHard(dtype, seed * 100 + r, plain.back());
          shifted.emplace_back(bytes + 1);
          std::copy(plain.back().begin(), plain.back().end(), shifted.back().begin() + 1);
          sources.push_back(shifted.back().data() + 1);
        }
        const Bytes expected = NaiveReduce(dtype, op, weights, plain);
        Bytes result(bytes + 2, std::byte{0xab});
        Reduce(dtype, op, weights, sources, result.data() + 1, elements);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), result.begin() + 1))
            << DTypeName(dtype) << " " << ReduceOpName(op) << " seed " << seed;
        EXPECT_EQ(result.front(), std::byte{0xab});
        EXPECT_EQ(result.back(), std::byte{0xab});

        const std::size_t in_place = prng.Below(ranks);
        Reduce(dtype, op, weights, sources, shifted[in_place].data() + 1, elements);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shifted[in_place].begin() + 1))
            << DTypeName(dtype) << " " << ReduceOpName(op) << " in place, seed " << seed;
      }
    }
  }
}

TEST(Reduce, RoundsASumOnce) {
  // Each of the small ones alone would be rounded off.
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {1, 0x1p-24f, 0x1p-24f}),
            1 + 0x1p-23f);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {0x1p100f, 1, -0x1p100f}), 0);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {0x1p100f, -0x1p100f, 1}), 1);
  // 1 + 2^-11 is halfway between two float16, and 2^-24 more is halfway between two
  // float32: by way of the nearest float32 it would become 1.
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, Halves({0x3c00, 0x1000, 0x0001})), 0x3c01);
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, Halves({0x3c00, 0x1000})), 0x3c00);
  EXPECT_EQ(ReduceOne(DType::kFloat16, ReduceOp::kSum, Halves({0xbc00, 0x9000, 0x8001})), 0xbc01);
  // bfloat16: 1 + 2^-8 is a tie, 2^-40 decides it.
  EXPECT_EQ(ReduceOne(DType::kBfloat16, ReduceOp::kSum, Halves({0x3f80, 0x3b80})), 0x3f80);
  EXPECT_EQ(ReduceOne(DType::kBfloat16, ReduceOp::kSum, Halves({0x3f80, 0x3b80, 0x2b80})), 0x3f81);
}

TEST(Reduce, RoundsFloat8ToTheNearestAndTiesToEven) {
  // e4m3fn: 1 = 0x38, 2^-4 = 0x18, half a step at 1; 2^-9 = 0x01 is its least.
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x38, 0x18})), 0x38);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x38, 0x18, 0x01})), 0x39);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x39, 0x18})), 0x3a);
  // It has no infinity and stops at 448.
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x7e, 0x7e})), 0x7e);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0xfe, 0xfe})), 0xfe);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x7f, 0x7e})), 0x7f);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kSum, Codes({0x7e, 0x58})), 0x7e);
  EXPECT_EQ(ReduceOne(DType::kFloat8E4m3fn, ReduceOp::kMean, Codes({0x7e, 0x7e})), 0x7e);
  // e5m2: 57344 + 57344 is infinite.
  EXPECT_EQ(ReduceOne(DType::kFloat8E5m2, ReduceOp::kSum, Codes({0x7b, 0x7b})), 0x7c);
  EXPECT_EQ(ReduceOne(DType::kFloat8E5m2, ReduceOp::kSum, Codes({0xfb, 0xfb})), 0xfc);
  // The fnuz types have one zero and one NaN, 0x80.
  for (const DType dtype : {DType::kFloat8E4m3fnuz, DType::kFloat8E5m2fnuz}) {
    EXPECT_EQ(ReduceOne(dtype, ReduceOp::kSum, Codes({0x7f, 0x7f})), 0x80);
    EXPECT_EQ(ReduceOne(dtype, ReduceOp::kSum, Codes({0x41, 0xc1})), 0x00);
    EXPECT_EQ(ReduceOne(dtype, ReduceOp::kMean, Codes({0x81, 0x00, 0x00})), 0x00);
    EXPECT_EQ(ReduceOne(dtype, ReduceOp::kSum, Codes({0x80, 0x01})), 0x80);
  }
  // e8m0fnu: powers of two by exponent, 0xff is NaN.
  EXPECT_EQ(ReduceOne(DType::kFloat8E8m0fnu, ReduceOp::kMin, Codes({0x80, 0x00, 0x7f})), 0x00);
  EXPECT_EQ(ReduceOne(DType::kFloat8E8m0fnu, ReduceOp::kMax, Codes({0x80, 0x00, 0x7f})), 0x80);
  EXPECT_EQ(ReduceOne(DType::kFloat8E8m0fnu, ReduceOp::kMin, Codes({0x80, 0xff, 0x00})), 0xff);
}

TEST(Reduce, AMeanIsWeightedAndARankOfWeightZeroIsNotRead) {
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kMean, {1, 2, 6}), 3);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kMean, {1, 5}, {3, 1}), 2);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kMean, {kNan, 5, 1}, {0, 1, 3}), 2);
  EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kFloat32, ReduceOp::kMean, {kNan, 5}, {1, 1})));
  const double value = 4;
  double result = 0;
  const std::byte* const sources[] = {nullptr, reinterpret_cast<const std::byte*>(&value)};
  const double weights[] = {0, 2};
  Reduce(DType::kFloat64, ReduceOp::kMean, weights, sources,
         reinterpret_cast<std::byte*>(&result), 1);
  EXPECT_EQ(result, 4);
}

TEST(Reduce, IntegersWrapAndBoolsAreLogical) {
  EXPECT_EQ(ReduceOne<std::int8_t>(DType::kInt8, ReduceOp::kSum, {127, 2}), -127);
  EXPECT_EQ(ReduceOne<std::int32_t>(DType::kInt32, ReduceOp::kSum,
                                    {std::numeric_limits<std::int32_t>::max(), 1}),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(ReduceOne<std::int64_t>(DType::kInt64, ReduceOp::kSum,
                                    {std::numeric_limits<std::int64_t>::min(), -1}),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ReduceOne<std::int8_t>(DType::kInt8, ReduceOp::kMin, {1, -1}), -1);
  EXPECT_EQ(ReduceOne<std::uint8_t>(DType::kUint8, ReduceOp::kMin, {1, 255}), 1);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    EXPECT_EQ(ReduceOne(DType::kBool, op, Codes({0, 1, 1})), 1);
    EXPECT_EQ(ReduceOne(DType::kBool, op, Codes({0, 0, 0})), 0);
  }
  EXPECT_EQ(ReduceOne(DType::kBool, ReduceOp::kMin, Codes({0, 1, 1})), 0);
  EXPECT_EQ(ReduceOne(DType::kBool, ReduceOp::kMin, Codes({1, 1, 1})), 1);
}

TEST(Reduce, NanWinsInMinAndMax) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<float> elements = {-1, 0, 1};
      elements[rank] = kNan;
      EXPECT_TRUE(std::isnan(ReduceOne(DType::kFloat32, op, elements))) << rank;
    }
    EXPECT_EQ(ReduceOne(DType::kFloat16, op, Halves({0x3c00, 0xfe01, 0x7e00})), 0xfe01);
  }
  EXPECT_EQ(ReduceOne<double>(DType::kFloat64, ReduceOp::kMax, {-kInfinity, kInfinity}), kInfinity);
}

TEST(Reduce, WhatIsNoNumberHasTheSameBitsWhereverItComesFrom) {
  for (const double other : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const double result =
        ReduceOne<double>(DType::kFloat64, ReduceOp::kSum, {-kInfinity, other});
    EXPECT_EQ(std::bit_cast<std::uint64_t>(result), 0x7ff8000000000000u);
  }
}

// Sums as they are handed over, one behind the other.
std::vector<float> SumsOf(DType dtype, const std::vector<const void*>& sources,
                          const std::vector<float>& weights, std::int64_t elements) {
  std::vector<const std::byte*> bytes;
  for (const void* each : sources) bytes.push_back(static_cast<const std::byte*>(each));
  std::vector<float> all;
  WeightedSum(dtype, bytes, weights, elements,
              [&](std::int64_t begin, std::span<const float> sums) {
                EXPECT_EQ(begin, static_cast<std::int64_t>(all.size()));
                all.insert(all.end(), sums.begin(), sums.end());
              });
  return all;
}

TEST(WeightedSum, AddsInRankOrderAndDoesNotReadARankOfWeightZero) {
  const float a[] = {0x1p30f, 1};
  const float b[] = {1, 2};
  const float c[] = {-0x1p30f, 3};
  // 1 is rounded off.
  EXPECT_EQ(SumsOf(DType::kFloat32, {a, b, c}, {1, 1, 1}, 2), (std::vector<float>{0, 6}));
  EXPECT_EQ(SumsOf(DType::kFloat32, {a, nullptr, c}, {1, 0, 2}, 2)[1], 7);
  EXPECT_EQ(SumsOf(DType::kFloat32, {nullptr, nullptr}, {0, 0}, 2), (std::vector<float>{0, 0}));
}

TEST(WeightedSum, IsTheSameHoweverLongTheRangeIs) {
  Prng prng(5);
  constexpr std::int64_t kElements = 5000;
  std::vector<float> sources[3];
  for (std::vector<float>& source : sources) {
    for (int i = 0; i < kElements; ++i) source.push_back(static_cast<float>(prng.Unit()));
  }
  const std::vector<float> weights = {0.3f, 0.7f, 1.1f};
  const std::vector<float> whole =
      SumsOf(DType::kFloat32, {sources[0].data(), sources[1].data(), sources[2].data()}, weights,
             kElements);
  for (const std::int64_t begin : {0, 1, 15, 16, 2047, 2048, 4999}) {
    const std::int64_t n = std::min<std::int64_t>(kElements - begin, 1 + prng.Below(3000));
    const std::vector<float> part = SumsOf(
        DType::kFloat32,
        {sources[0].data() + begin, sources[1].data() + begin, sources[2].data() + begin}, weights,
        n);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t k = begin + i;
      ASSERT_EQ(part[i], (0.3f * sources[0][k] + 0.7f * sources[1][k]) + 1.1f * sources[2][k]);
    }
  }
}

TEST(WeightedSum, OfShortTypesIsMadeInFloat) {
  // 1.5 and 2^-9 do not fit one bfloat16, whose sum would be 1.5.
  const std::uint16_t bfloat[][1] = {{0x3fc0}, {0x3b00}};
  EXPECT_EQ(SumsOf(DType::kBfloat16, {bfloat[0], bfloat[1]}, {1, 1}, 1)[0], 1.5f + 0x1p-9f);
  const std::uint16_t half[][1] = {{0x3e00}, {0x0001}};  // 1.5 and 2^-24
  EXPECT_EQ(SumsOf(DType::kFloat16, {half[0], half[1]}, {1, 2}, 1)[0], 1.5f + 0x1p-23f);
}

}  // namespace
}  // namespace lockstep
