#include "worker/transport/shm/shm_transport.h"

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Shm, TransportConformance,
    AllWorldSizes({.make_factory = [] { return std::make_shared<ShmFactory>(); }}),
    ConformanceCaseName);

TEST(ShmFactory, ARankThatWaitsForPeersToComeCanBeAborted) {
  ShmFactory factory;
  std::thread coordinator;
  std::vector<bool> told;  // whether there was a transport
  EXPECT_THAT(
      factory.Create({.epoch = Epoch(1),
                      .members = {"w0", "w1"},
                      .deadline = absl::Seconds(10),
                      .on_forming =
                          [&](Transport* transport) {
                            told.push_back(transport != nullptr);
                            if (transport == nullptr) return coordinator.join();
                            coordinator = std::thread([transport] {
                              transport->Abort(absl::UnavailableError("w1 cannot open it"));
                            });
                          }},
                     [](const std::optional<std::string>& mine)
                         -> absl::StatusOr<std::string> { return *mine; }),
      StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("w1 cannot open it")));
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
}

// w1 comes late in the wait and w2 never: both the same wait, so the message says
// how long w2 was waited for, not how long since w1 came.
TEST(ShmTransport, TheTimeThatAMissingRankWasWaitedForIsThatOfTheWholeCall) {
  constexpr absl::Duration kDeadline = absl::Milliseconds(600);
  ShmFactory factory;
  std::promise<std::string> promise;
  const std::shared_future<std::string> endpoint = promise.get_future().share();
  const auto make = [&](int rank) {
    return factory.Create(
        {.epoch = Epoch(1), .rank = rank, .members = {"w0", "w1", "w2"}, .deadline = kDeadline},
        [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
          if (mine.has_value()) promise.set_value(*mine);
          return endpoint.get();
        });
  };
  std::vector<std::thread> ranks;
  absl::Status status;
  std::atomic<int> done = 0;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Transport> transport, make(rank));
      if (rank == 1) absl::SleepFor(kDeadline / 2);  // how late w1 is
      const absl::Status mine = rank == 2 ? absl::OkStatus() : transport->Agree({}).status();
      if (rank == 0) status = mine;
      for (++done; done < 3;) absl::SleepFor(absl::Milliseconds(1));  // w2 is there, but silent
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               testing::HasSubstr("w2 (rank 2) did not come within 6")));
}

}  // namespace
}  // namespace lockstep
