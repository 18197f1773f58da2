#include "worker/transport/nccl/watchdog.h"

#include <future>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace lockstep::nccl_link {
namespace {

const RealClock kClock;

// Whether it has come within a time that is long for a watchdog.
bool Comes(const std::future<void>& bite) {
  return bite.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

struct Bite {
  std::promise<void> promise;
  std::future<void> bitten = promise.get_future();
  Watchdog watchdog{[this] { promise.set_value(); }};

  bool HasBitten() const {
    return bitten.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
};

TEST(Watchdog, BitesOnceWhenAThreadIsLate) {
  Bite bite;
  const Watchdog::Scope scope = bite.watchdog.Watch(kClock.Now());
  EXPECT_TRUE(Comes(bite.bitten));
  // Another would throw, as the promise is kept.
}

TEST(Watchdog, LeavesAThreadAloneThatIsBack) {
  auto bite = std::make_unique<Bite>();
  for (int i = 0; i < 1000; ++i) {
    const Watchdog::Scope scope = bite->watchdog.Watch(kClock.Now() + absl::Hours(1));
  }
  // In none of the scopes any more.
  bite->watchdog.Hasten(kClock.Now());
  const Watchdog::Scope scope = bite->watchdog.Watch(kClock.Now() + absl::Hours(1));
  EXPECT_FALSE(bite->HasBitten());
}

TEST(Watchdog, WatchesSeveralThreadsAtOnce) {
  Bite bite;
  const Watchdog::Scope first = bite.watchdog.Watch(kClock.Now() + absl::Hours(1));
  std::thread([&] {
    const Watchdog::Scope second = bite.watchdog.Watch(MonoTime::Infinite());
    { const Watchdog::Scope within = bite.watchdog.Watch(kClock.Now() + absl::Hours(2)); }
    EXPECT_FALSE(bite.HasBitten());
    bite.watchdog.Hasten(kClock.Now() + absl::Hours(3));
    const Watchdog::Scope late = bite.watchdog.Watch(kClock.Now());
    EXPECT_TRUE(Comes(bite.bitten));
  }).join();
}

TEST(Watchdog, IsHastenedWithinAScopeOnlyAndNeverDelayed) {
  Bite bite;
  const Watchdog::Scope scope = bite.watchdog.Watch(kClock.Now() + absl::Hours(1));
  bite.watchdog.Hasten(kClock.Now());
  bite.watchdog.Hasten(kClock.Now() + absl::Hours(2));
  EXPECT_TRUE(Comes(bite.bitten));
}

}  // namespace
}  // namespace lockstep::nccl_link
