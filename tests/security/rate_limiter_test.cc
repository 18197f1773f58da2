#include "security/rate_limiter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

MonoTime At(double seconds) { return MonoTime() + absl::Seconds(seconds); }

TEST(RateLimiter, AdmitsABurstAndThenByTime) {
  RateLimiter limiter({.per_second = 2, .burst = 3}, 10);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.Admit("a", At(0)));
  EXPECT_FALSE(limiter.Admit("a", At(0)));
  EXPECT_FALSE(limiter.Admit("a", At(0.4)));
  EXPECT_TRUE(limiter.Admit("a", At(0.5)));
  EXPECT_FALSE(limiter.Admit("a", At(0.5)));
  EXPECT_TRUE(limiter.Admit("a", At(1)));
}

TEST(RateLimiter, KeysDoNotTakeFromEachOther) {
  RateLimiter limiter({.per_second = 1, .burst = 1}, 10);
  EXPECT_TRUE(limiter.Admit("a", At(0)));
  EXPECT_TRUE(limiter.Admit("b", At(0)));
  EXPECT_FALSE(limiter.Admit("a", At(0)));
}

TEST(RateLimiter, FillsNoFurtherThanTheBurst) {
  RateLimiter limiter({.per_second = 1, .burst = 2}, 10);
  EXPECT_TRUE(limiter.Admit("a", At(0)));
  int admitted = 0;
  for (int i = 0; i < 10; ++i) admitted += limiter.Admit("a", At(1000)) ? 1 : 0;
  EXPECT_EQ(admitted, 2);
}

TEST(RateLimiter, TimeThatStandsStillOrGoesBackAddsNothing) {
  RateLimiter limiter({.per_second = 1, .burst = 1}, 10);
  EXPECT_TRUE(limiter.Admit("a", At(5)));
  EXPECT_FALSE(limiter.Admit("a", At(1)));
  EXPECT_FALSE(limiter.Admit("a", At(5.5)));
  EXPECT_TRUE(limiter.Admit("a", At(6)));
}

TEST(RateLimiter, RemembersABoundedNumberOfKeys) {
  RateLimiter limiter({.per_second = 1, .burst = 1}, 3);
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(limiter.Admit(key, At(0)));
  EXPECT_FALSE(limiter.Admit("d", At(0.5))) << "all three are in use";
  EXPECT_TRUE(limiter.Admit("d", At(1))) << "those that are full again are forgotten";
  EXPECT_EQ(limiter.size(), 1);
}

}  // namespace
}  // namespace lockstep
