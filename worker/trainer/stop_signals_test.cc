#include "worker/trainer/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <functional>

#include "absl/time/time.h"
#include "common/base/mailbox.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(10);
constexpr absl::Duration kLong = absl::Seconds(30);  // never waited for in full

// Of a process that got SIGTERM under `callback` and waits for news of it.
[[noreturn]] void RunAndStop(absl::Duration grace,
                             const std::function<void(Mailbox<int>&)>& callback) {
  StopRequest request;
  const StopSignals signals(&request, grace);
  Mailbox<int> news(2);
  if (callback) request.OnInterrupt([&] { callback(news); });
  kill(getpid(), SIGTERM);
  const bool heard = !news.Drain(kLong).empty();
  _exit(heard && request.signal() == SIGTERM ? 7 : 8);
}

TEST(StopSignalsDeathTest, ExitsAtOnceWhileNothingCanBeInterrupted) {
  EXPECT_EXIT(RunAndStop(kLong, nullptr), testing::ExitedWithCode(128 + SIGTERM),
              "stopped by signal 15 before training began");
}

TEST(StopSignalsDeathTest, InterruptsARunThatDoesNotEndInTime) {
  EXPECT_EXIT(RunAndStop(kShort, [](Mailbox<int>& news) { news.Post(1).IgnoreError(); }),
              testing::ExitedWithCode(7), "");
}

TEST(StopSignalsDeathTest, TheSecondSignalEndsTheProcessWhateverItWaitsFor) {
  EXPECT_EXIT(RunAndStop(kShort, [](Mailbox<int>&) { kill(getpid(), SIGINT); }),
              testing::ExitedWithCode(128 + SIGINT), "stopped by signal 2 at once");
}

TEST(StopSignals, LeavesARunThatEndsInTimeAlone) {
  StopRequest request;
  bool interrupted = false;
  request.OnInterrupt([&] { interrupted = true; });
  {
    const StopSignals signals(&request, kLong);
    kill(getpid(), SIGINT);
    while (request.signal() == 0) sched_yield();
  }
  EXPECT_EQ(request.signal(), SIGINT);
  EXPECT_FALSE(interrupted);
}

TEST(StopSignals, ARunWithoutSignalsEndsWithoutARequest) {
  StopRequest request;
  { const StopSignals signals(&request); }
  EXPECT_EQ(request.signal(), 0);
}

}  // namespace
}  // namespace lockstep
