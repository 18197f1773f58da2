// Ranks as processes: what threads cannot show.
#include <unistd.h>

#include <memory>
#include <string>

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

}  // namespace
}  // namespace lockstep
