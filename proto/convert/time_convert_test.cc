#include "proto/convert/time_convert.h"

#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::StartsWith;

TEST(Convert, DurationsAndTimesComeBackEqualToTheNanosecond) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Prng prng(seed);
    const auto nanos = static_cast<std::int64_t>(prng.Next()) >> prng.Below(64);
    EXPECT_EQ(FromProto(ToProto(absl::Nanoseconds(nanos))).value(), absl::Nanoseconds(nanos));
    EXPECT_EQ(FromProto(ToProto(absl::FromUnixNanos(nanos))).value(), absl::FromUnixNanos(nanos));
  }
}

TEST(Convert, WhatAMessageCannotHoldBecomesItsNearestValue) {
  EXPECT_EQ(ToProto(absl::InfiniteDuration()).seconds(), 315'576'000'000);
  EXPECT_EQ(ToProto(-absl::InfiniteDuration()).seconds(), -315'576'000'000);
  EXPECT_EQ(ToProto(absl::InfiniteFuture()).seconds(), 253'402'300'799);
  EXPECT_EQ(ToProto(absl::InfinitePast()).seconds(), -62'135'596'800);
  EXPECT_EQ(ToProto(absl::Nanoseconds(1) / 4).nanos(), 0);
  EXPECT_EQ(ToProto(-absl::Milliseconds(1500)).seconds(), -1);
  EXPECT_EQ(ToProto(-absl::Milliseconds(1500)).nanos(), -500'000'000);
  EXPECT_EQ(ToProto(absl::FromUnixMillis(-1500)).seconds(), -2);
  EXPECT_EQ(ToProto(absl::FromUnixMillis(-1500)).nanos(), 500'000'000);
}

TEST(Convert, DurationsAndTimesOutOfRangeAreRefused) {
  const auto duration = [](std::int64_t seconds, std::int32_t nanos) {
    google::protobuf::Duration proto;
    proto.set_seconds(seconds);
    proto.set_nanos(nanos);
    return FromProto(proto);
  };
  const auto time = [](std::int64_t seconds, std::int32_t nanos) {
    google::protobuf::Timestamp proto;
    proto.set_seconds(seconds);
    proto.set_nanos(nanos);
    return FromProto(proto);
  };
  const auto bad = [](const char* field) {
    return StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(field));
  };
  EXPECT_THAT(duration(315'576'000'001, 0), bad("seconds"));
  EXPECT_THAT(duration(std::numeric_limits<std::int64_t>::min(), 0), bad("seconds"));
  EXPECT_THAT(duration(1, -1), bad("nanos"));
  EXPECT_THAT(duration(-1, 1), bad("nanos"));
  EXPECT_THAT(duration(0, 1'000'000'000), bad("nanos"));
  EXPECT_EQ(duration(0, -1).value(), -absl::Nanoseconds(1));
  EXPECT_THAT(time(253'402'300'800, 0), bad("seconds"));
  EXPECT_THAT(time(-62'135'596'801, 0), bad("seconds"));
  EXPECT_THAT(time(0, -1), bad("nanos"));
  EXPECT_THAT(time(0, 1'000'000'000), bad("nanos"));
}

}  // namespace
}  // namespace lockstep
