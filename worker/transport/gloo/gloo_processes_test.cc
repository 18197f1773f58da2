// Ranks as processes: what threads cannot show.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/processes.h"
#include "worker/transport/gloo/gloo_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::shared_ptr<TransportFactory> MakeGloo() { return std::make_shared<GlooFactory>(GlooOptions{}); }

// Three ranks, of which `victim` is killed while the others wait for it.
void ExpectTheOthersToNameTheKilled(int victim) {
  SCOPED_TRACE(victim);
  Processes processes(3, MakeGloo, [victim](int rank, Transport& transport) -> std::string {
    if (rank == victim) {
      pause();
      return "not killed";
    }
    return transport.Agree({}).status().ToString();
  });
  for (int rank = 0; rank < 3; ++rank) processes.AwaitFormed(rank);
  const absl::Time killed = absl::Now();
  processes.Kill(victim);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    const std::string result = processes.Result(rank);
    EXPECT_THAT(result, StartsWith("UNAVAILABLE"));
    EXPECT_THAT(result, HasSubstr(absl::StrCat("w", victim, " (rank ", victim, ") is gone")));
    for (int other = 0; other < 3; ++other) {
      if (other != victim) {
        EXPECT_THAT(result, Not(HasSubstr(absl::StrCat("w", other, " (rank"))));
      }
    }
  }
  // The deadline of operations is 20 s.
  EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
}

TEST(GlooProcesses, AKilledPeerIsNamedLongBeforeTheDeadline) {
  ExpectTheOthersToNameTheKilled(1);
}

TEST(GlooProcesses, TheKilledServerOfTheRendezvousIsNamedLongBeforeTheDeadline) {
  ExpectTheOthersToNameTheKilled(0);
}

// A bucket is more than sockets hold.
std::shared_ptr<TransportFactory> MakeGlooOfLargeBuckets() {
  return std::make_shared<GlooFactory>(GlooOptions{.bucket_bytes = 16 << 20});
}

// Of two ranks in an update of shards, the second stops for good while buckets are on
// their way, so that the first waits for some that are half-way.
class HalfWay {
 public:
  HalfWay()
      : processes_(2, MakeGlooOfLargeBuckets, [this](int rank, Transport& transport) -> std::string {
          constexpr std::int64_t kElements = 20 << 20;
          const auto gradients =
              transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements);
          const auto parameters =
              transport.Allocate(ArenaUse::kParameters, DType::kFloat32, kElements);
          if (!gradients.ok() || !parameters.ok()) return "no arena";
          std::thread aborter;
          if (rank == 0) {
            aborter = std::thread([&] {
              if (abort_.ReceiveLine() == "abort") {
                transport.Abort(absl::UnavailableError("the epoch ended"));
              }
            });
          }
          const absl::Status status = transport.UpdateShards(
              *gradients, *parameters, {{{0, kElements / 2}, {kElements / 2, kElements}}},
              {{1.0f, 1.0f}}, [&](std::int64_t, std::span<const float>) {
                if (rank == 0) return;
                stopped_.Send("stopped");
                raise(SIGSTOP);
              });
          const std::string text = status.ToString();
          if (rank == 0) {
            abort_.Send("do not");
            aborter.join();
          }
          return text;
        }) {
    for (int rank = 0; rank < 2; ++rank) processes_.AwaitFormed(rank);
    EXPECT_EQ(stopped_.ReceiveLine(), "stopped");
  }

  void Kill() { processes_.Kill(1); }
  void Abort() {
    // Most likely while the first rank waits; either order must free it.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    abort_.Send("abort");
  }
  std::string Result() { return processes_.Result(0); }

 private:
  Pipe stopped_;
  Pipe abort_;
  Processes processes_;
};

TEST(GlooProcesses, APeerThatIsKilledWhileAMessageIsHalfWayIsNamedLongBeforeTheDeadline) {
  HalfWay ranks;
  const absl::Time killed = absl::Now();
  ranks.Kill();
  const std::string result = ranks.Result();
  EXPECT_THAT(result, StartsWith("UNAVAILABLE"));
  EXPECT_THAT(result, HasSubstr("w1 (rank 1) is gone"));
  EXPECT_LT(absl::Now() - killed, absl::Seconds(10));
}

TEST(GlooProcesses, AnAbortEndsTheWaitForAMessageThatIsHalfWay) {
  HalfWay ranks;
  const absl::Time aborted = absl::Now();
  ranks.Abort();
  const std::string result = ranks.Result();
  EXPECT_THAT(result, StartsWith("ABORTED"));
  EXPECT_THAT(result, HasSubstr("the epoch ended"));
  EXPECT_LT(absl::Now() - aborted, absl::Seconds(10));
}

TEST(GlooProcesses, AStoppedPeerIsNamedAtTheDeadline) {
  HalfWay ranks;
  const std::string result = ranks.Result();
  EXPECT_THAT(result, StartsWith("DEADLINE_EXCEEDED"));
  EXPECT_THAT(result, HasSubstr("w1 (rank 1) did not come in time"));
}

// Three ranks whose gradients are under way; one is killed in backward.
TEST(GlooProcesses, APeerThatIsKilledInBackwardIsNamedLongBeforeTheDeadline) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE(victim);
    Pipe begun;
    Processes processes(3, MakeGloo, [&](int rank, Transport& transport) -> std::string {
      constexpr std::int64_t kElements = 3 << 20;
      const auto gradients = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements);
      if (!gradients.ok()) return "no arena";
      const std::vector<Shard> shards = {
          {0, 1 << 20}, {1 << 20, 2 << 20}, {2 << 20, kElements}};
      const ArenaShards part = {*gradients, shards};
      if (!transport.BeginReduction({&part, 1}, 1).ok()) return "not begun";
      if (rank == victim) {
        transport.GradientsReady(*gradients, kElements / 2, kElements);
        begun.Send("begun");
        pause();
        return "not killed";
      }
      transport.GradientsReady(*gradients, 0, kElements);
      return transport.Agree({}).status().ToString();
    });
    for (int rank = 0; rank < 3; ++rank) processes.AwaitFormed(rank);
    EXPECT_EQ(begun.ReceiveLine(), "begun");
    const absl::Time killed = absl::Now();
    processes.Kill(victim);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string result = processes.Result(rank);
      EXPECT_THAT(result, StartsWith("UNAVAILABLE"));
      EXPECT_THAT(result, HasSubstr(absl::StrCat("w", victim, " (rank ", victim, ") is gone")));
    }
    EXPECT_LT(absl::Now() - killed, absl::Seconds(10));
  }
}

}  // namespace
}  // namespace lockstep
