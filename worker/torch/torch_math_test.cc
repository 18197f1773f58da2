// On the CPU and on a made-up device beside it: what differs on a real one is that the
// host cannot read its memory, and when work is done.
#include "worker/torch/torch_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/host_math.h"
#include "worker/torch/fake_device.h"
#include "worker/torch/torch_device.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr DType kTrainable[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};
// One tile of the sums and a little of the next.
constexpr std::int64_t kMoreThanATile = kTileElements + 5;

// Elements of all signs and exponents, but finite, so that sums round in all ways.
std::vector<std::byte> Draw(DType dtype, std::int64_t elements, std::uint64_t seed) {
  std::vector<std::byte> bytes(elements * ElementBytes(dtype));
  Prng prng(seed);
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    // Without the highest bit of the exponent of a float or a bfloat16, or of both
    // numbers of a short type; sums of three are then finite.
    std::uint32_t bits = static_cast<std::uint32_t>(prng.Next()) & 0xbfffbfffu;
    if (dtype != DType::kFloat16 && prng.Below(2) == 0) bits |= 0x3f000000u;
    std::memcpy(bytes.data() + at, &bits, std::min<std::size_t>(4, bytes.size() - at));
  }
  return bytes;
}

std::vector<const std::byte*> SourcesOf(const std::vector<std::vector<std::byte>>& ranks) {
  std::vector<const std::byte*> sources;
  for (const auto& rank : ranks) sources.push_back(rank.data());
  return sources;
}

std::vector<std::uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

std::vector<float> SumBy(DeviceMath& math, DType dtype,
                         const std::vector<std::vector<std::byte>>& ranks,
                         const std::vector<float>& weights, std::int64_t elements) {
  std::vector<float> sums(elements, std::numeric_limits<float>::quiet_NaN());
  LOCKSTEP_EXPECT_OK(
      math.WeightedSum(dtype, SourcesOf(ranks), weights, elements, sums.data()));
  return sums;
}

class TorchMathTest : public testing::TestWithParam<c10::Device> {
 protected:
  void SetUp() override { LOCKSTEP_ASSERT_OK_AND_ASSIGN(math_, MakeTorchMath(GetParam())); }

  std::unique_ptr<DeviceMath> math_;
};
INSTANTIATE_TEST_SUITE_P(Devices, TorchMathTest,
                         testing::Values(c10::Device(c10::kCPU), FakeDevice()),
                         [](const auto& info) { return info.param.is_cpu() ? "Cpu" : "Fake"; });

TEST_P(TorchMathTest, SumsOfRanksHaveTheBitsOfTheHosts) {
  HostMath host;
  for (const DType dtype : kTrainable) {
    for (const std::int64_t elements : {0, 1, 17, 5000}) {
      const std::vector<std::vector<std::byte>> ranks = {
          Draw(dtype, elements, 1), Draw(dtype, elements, 2), Draw(dtype, elements, 3)};
      for (const std::vector<float>& weights : std::vector<std::vector<float>>{
               {1, 1, 1}, {0.3f, 7, 1e-3f}, {0, 5, 0.1f}, {3, 0, 0}, {0, 0, 0}, {0, 0, 1.7f}}) {
        EXPECT_EQ(BitsOf(SumBy(*math_, dtype, ranks, weights, elements)),
                  BitsOf(SumBy(host, dtype, ranks, weights, elements)))
            << DTypeName(dtype) << " " << elements << " " << testing::PrintToString(weights);
      }
    }
  }
}

TEST_P(TorchMathTest, SumsOfSeveralTilesAreAsOne) {
  HostMath host;
  for (const DType dtype : kTrainable) {
    const std::vector<std::vector<std::byte>> ranks = {Draw(dtype, kMoreThanATile, 1),
                                                       Draw(dtype, kMoreThanATile, 2)};
    EXPECT_TRUE(BitsOf(SumBy(*math_, dtype, ranks, {0.7f, 3}, kMoreThanATile)) ==
                BitsOf(SumBy(host, dtype, ranks, {0.7f, 3}, kMoreThanATile)))
        << DTypeName(dtype);
  }
}

TEST_P(TorchMathTest, ARankOfWeightZeroIsNotRead) {
  for (const DType dtype : kTrainable) {
    // All bits set is a NaN of each type.
    const std::vector<std::byte> nan(64, std::byte{0xff});
    const std::vector<std::byte> zeros(64);
    const std::int64_t elements = 64 / ElementBytes(dtype);
    const std::vector<float> expected(elements, 0.0f);
    EXPECT_EQ(SumBy(*math_, dtype, {nan, zeros, nan}, {0, 2, 0}, elements), expected);
    EXPECT_EQ(SumBy(*math_, dtype, {nan}, {0}, elements), expected);
    EXPECT_TRUE(std::isnan(SumBy(*math_, dtype, {nan, zeros}, {1, 1}, elements)[0]));
    // One that is not there at all.
    const std::vector<const std::byte*> sources = {nullptr, zeros.data()};
    std::vector<float> sums(elements, 1.0f);
    LOCKSTEP_EXPECT_OK(math_->WeightedSum(dtype, sources, std::vector<float>{0, 1}, elements,
                                          sums.data()));
    EXPECT_EQ(sums, expected);
  }
}

TEST_P(TorchMathTest, SumsIntoAnyOfItsSources) {
  HostMath host;
  for (std::size_t into = 0; into < 3; ++into) {
    std::vector<std::vector<std::byte>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(Draw(DType::kFloat32, kMoreThanATile, rank));
    }
    const std::vector<float> weights = {2, 0.1f, 3};
    const std::vector<float> expected =
        SumBy(host, DType::kFloat32, ranks, weights, kMoreThanATile);
    const auto sums = reinterpret_cast<float*>(ranks[into].data());
    LOCKSTEP_EXPECT_OK(math_->WeightedSum(DType::kFloat32, SourcesOf(ranks), weights,
                                         kMoreThanATile, sums));
    EXPECT_EQ(std::memcmp(sums, expected.data(), kMoreThanATile * sizeof(float)), 0) << into;
  }
}

TEST_P(TorchMathTest, AddsSquaresOfParts) {
  HostMath host;
  const auto ours = math_->MakeSumOfSquares();
  const auto theirs = host.MakeSumOfSquares();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double none, ours->Sum());
  EXPECT_EQ(none, 0);
  Prng prng(3);
  std::vector<float> values(kMoreThanATile);
  for (float& value : values) value = static_cast<float>(prng.Unit() - 0.5);
  const std::span<const float> all = values;
  for (const auto part : {all.first(1), all.subspan(1, 0), all.subspan(1)}) {
    LOCKSTEP_ASSERT_OK(ours->Add(part));
    LOCKSTEP_ASSERT_OK(theirs->Add(part));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double sum, ours->Sum());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double expected, theirs->Sum());
  EXPECT_NEAR(sum, expected, 1e-12 * expected);
  // In float the square would overflow.
  LOCKSTEP_ASSERT_OK(ours->Add(std::vector<float>{1e30f}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double large, ours->Sum());
  EXPECT_NEAR(large, 1e60, 1e54);
  LOCKSTEP_ASSERT_OK(ours->Add(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const double broken, ours->Sum());
  EXPECT_TRUE(std::isnan(broken));
}

TEST_P(TorchMathTest, MemoryIsZeroedAndLivesAsLongAsAPointerToIt) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(std::shared_ptr<float[]> memory, math_->Allocate(1000));
  EXPECT_EQ(std::count(memory.get(), memory.get() + 1000, 0.0f), 1000);
  std::shared_ptr<float[]> second = memory;
  memory.reset();
  const std::vector<float> values = {1, 2, 3};
  LOCKSTEP_ASSERT_OK(math_->Copy(values, second.get() + 7));
  EXPECT_EQ(std::vector<float>(second.get() + 6, second.get() + 11),
            (std::vector<float>{0, 1, 2, 3, 0}));
  LOCKSTEP_EXPECT_OK(math_->Allocate(0).status());
}

TEST_P(TorchMathTest, MemoryThatThereIsNotIsAnError) {
  EXPECT_THAT(math_->Allocate(std::int64_t{1} << 55).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory for")));
  EXPECT_THAT(math_->MakeOptimizer(Adam{}, {{0, std::int64_t{1} << 55, kNoGroup}}, 0).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory for")));
}

TEST_P(TorchMathTest, WorkIsPutOnItsStream) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "no streams";
  double stream = 0;
  const c10::StreamId id = reinterpret_cast<std::intptr_t>(&stream);
  LOCKSTEP_ASSERT_OK(math_->UseStream(&stream));
  EXPECT_TRUE(math_->on_stream());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto optimizer,
                                math_->MakeOptimizer(Adam{}, {{0, 2, kNoGroup}}, 1));
  EXPECT_GE(TakeFakeDeviceUse().waits, 1) << "steps may be put on another stream";
  std::vector<float> values = {1, 2, 3};
  const auto bytes = reinterpret_cast<std::byte*>(values.data());
  SumBy(*math_, DType::kBfloat16, {Draw(DType::kBfloat16, 3, 1), Draw(DType::kBfloat16, 3, 2)},
        {1, 2}, 3);
  const auto squares = math_->MakeSumOfSquares();
  LOCKSTEP_ASSERT_OK(squares->Add(values));
  LOCKSTEP_ASSERT_OK(squares->Sum().status());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto memory, math_->Allocate(3));
  LOCKSTEP_ASSERT_OK(math_->Copy(values, memory.get()));
  optimizer->BeginStep(0.5f);
  optimizer->Update(0, std::span(values).first(1), DType::kFloat32, bytes + 4);
  optimizer->Update(1, std::span(values).first(1), DType::kFloat16, bytes + 8);
  LOCKSTEP_EXPECT_OK(optimizer->EndStep());
  const FakeDeviceUse use = TakeFakeDeviceUse();
  EXPECT_GE(use.operators, 20);
  EXPECT_EQ(use.streams, std::set<c10::StreamId>{id});
  EXPECT_EQ(CurrentFakeStream(1), 0);
}

// As a transport does while a reduction is under way.
TEST_P(TorchMathTest, AnotherThreadThatTakesItOverUsesTheSameStream) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "no streams";
  double stream = 0;
  LOCKSTEP_ASSERT_OK(math_->UseStream(&stream));
  FakeDeviceUse use;  // which is counted by thread
  const auto ranks = {Draw(DType::kFloat32, 3, 1), Draw(DType::kFloat32, 3, 2)};
  std::vector<float> sums;
  std::thread([&] {
    sums = SumBy(*math_, DType::kFloat32, ranks, {1, 2}, 3);
    LOCKSTEP_EXPECT_OK(math_->Allocate(3).status());
    use = TakeFakeDeviceUse();
  }).join();
  EXPECT_EQ(use.streams, std::set<c10::StreamId>{reinterpret_cast<std::intptr_t>(&stream)});
  HostMath host;
  EXPECT_EQ(BitsOf(sums), BitsOf(SumBy(host, DType::kFloat32, ranks, {1, 2}, 3)));
}

TEST_P(TorchMathTest, TheHostReadsACopyUnlessTheMemoryIsItsOwn) {
  const std::vector<float> values = {1, 2};
  const std::span<const std::byte> there = std::as_bytes(std::span(values));
  std::vector<std::byte> scratch;
  TakeFakeDeviceUse();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto bytes, math_->ToHost(there, scratch));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<float[]> other,
                                math_->Allocate(static_cast<std::int64_t>(bytes.size()) / 4 + 1));
  auto* const copy = reinterpret_cast<std::byte*>(other.get());
  LOCKSTEP_ASSERT_OK(math_->FromHost(bytes, copy));
  std::vector<std::byte> second;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, math_->ToHost({copy, bytes.size()}, second));
  EXPECT_TRUE(std::ranges::equal(again, bytes));
  EXPECT_EQ(std::vector(bytes.begin(), bytes.end()), std::vector(there.begin(), there.end()));
  EXPECT_EQ(bytes.data() == there.data(), GetParam().is_cpu());
  EXPECT_EQ(scratch.size(), GetParam().is_cpu() ? 0 : 8);
  EXPECT_EQ(TakeFakeDeviceUse().waits, GetParam().is_cpu() ? 0 : 3);
}

}  // namespace
}  // namespace lockstep
