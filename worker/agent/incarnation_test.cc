#include "worker/agent/incarnation.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(NewIncarnation, IsValidAndGrows) {
  Incarnation last;
  for (int i = 0; i < 1000; ++i) {
    const Incarnation next = NewIncarnation();
    EXPECT_TRUE(next.valid());
    EXPECT_GT(next, last);
    last = next;
  }
}

TEST(NewIncarnation, IsNearTheWallClockSoThatALaterStartHasALargerOne) {
  const absl::Time now = absl::Now();
  const absl::Time said = absl::FromUnixNanos(NewIncarnation().value());
  EXPECT_LT(absl::AbsDuration(said - now), absl::Seconds(1));
}

}  // namespace
}  // namespace lockstep
