#include "worker/engine/content_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/device/forwarding_math.h"
#include "worker/device/host_math.h"

namespace lockstep {
namespace {

// Memory that the host must not look at: it holds the complement of each byte.
class ComplementMath final : public ForwardingMath {
 public:
  ComplementMath() : ForwardingMath(std::make_unique<HostMath>()) {}
  absl::StatusOr<std::span<const std::byte>> ToHost(std::span<const std::byte> bytes,
                                                    std::vector<std::byte>& scratch) override {
    scratch.clear();
    for (const std::byte each : bytes) scratch.push_back(~each);
    return scratch;
  }
};

TensorView Int64s(std::vector<std::int64_t>& values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return {{.name = "t", .dtype = DType::kInt64, .shape = {size}},
          reinterpret_cast<std::byte*>(values.data())};
}

TEST(ContentReader, ATensorHasOneDigestWhereverItLies) {
  ComplementMath math;
  ContentReader reader(&math);
  std::vector<std::int64_t> here = {1, 2, 3};
  std::vector<std::int64_t> there = {~1, ~2, ~3};
  const TensorView on_host = Int64s(here);
  TensorView on_device = Int64s(there);
  on_device.on_device = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t host_digest, reader.Digest(on_host));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t device_digest, reader.Digest(on_device));
  EXPECT_EQ(host_digest, device_digest);
  there[1] = ~4;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t changed, reader.Digest(on_device));
  EXPECT_NE(host_digest, changed);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::span<const std::byte> bytes, reader.Bytes(on_device));
  std::vector<std::int64_t> read(3);
  ASSERT_EQ(bytes.size(), 24);
  std::memcpy(read.data(), bytes.data(), 24);
  EXPECT_EQ(read, (std::vector<std::int64_t>{1, 4, 3}));
}

TEST(ContentReader, ADigestIsOfTypeAndShapeToo) {
  HostMath math;
  ContentReader reader(&math);
  std::vector<std::int64_t> values = {1, 2, 3, 4};
  TensorView view = Int64s(values);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t row, reader.Digest(view));
  view.spec.shape = {2, 2};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t square, reader.Digest(view));
  view.spec.dtype = DType::kFloat64;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::uint64_t floats, reader.Digest(view));
  EXPECT_NE(row, square);
  EXPECT_NE(square, floats);
}

}  // namespace
}  // namespace lockstep
