// Ranks as processes: what threads cannot show.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/processes.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::shared_ptr<TransportFactory> MakeShm() { return std::make_shared<ShmFactory>(); }

std::set<std::string> SharedMemoryNames() {
  std::set<std::string> names;
  DIR* directory = opendir("/dev/shm");
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) names.insert(entry->d_name);
  closedir(directory);
  return names;
}

TEST(ShmProcesses, ReduceAndSpreadAcrossProcesses) {
  Processes processes(3, MakeShm, [](int rank, Transport& transport) -> std::string {
    const std::vector<Shard> shards = {{0, 16}, {16, 32}, {32, 40}};
    const auto gradients = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, 40);
    const auto parameters = transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 40);
    if (!gradients.ok() || !parameters.ok()) return "no arenas";
    if (!parameters->shared) return "not shared";
    std::ranges::fill(gradients->floats(), 1.0f + rank);
    const std::vector<float> weights(3, 1.0f);
    const auto s = transport.UpdateShards(
        *gradients, *parameters, shards, weights,
        [&](std::int64_t begin, std::span<const float> sums) {
          for (std::size_t i = 0; i < sums.size(); ++i) {
            parameters->floats()[shards[rank].begin + begin + i] = sums[i] * 10;
          }
        });
    if (!s.ok()) return s.ToString();
    for (const float value : parameters->floats()) {
      if (value != 60.0f) return absl::StrCat("value ", value);
    }
    return transport.Agree({}).ok() ? "fine" : "no agreement";
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.Result(rank), "fine");
}

TEST(ShmProcesses, AKilledPeerIsNamedToAllWhoWaitLongBeforeTheDeadline) {
  const std::set<std::string> before = SharedMemoryNames();
  {
    Processes processes(4, MakeShm, [](int rank, Transport& transport) -> std::string {
      if (rank == 2) {
        pause();
        return "not killed";
      }
      const absl::Time start = absl::Now();
      const absl::Status status = transport.Agree({}).status();
      return absl::StrCat(absl::ToInt64Milliseconds(absl::Now() - start), " ms ",
                          status.ToString());
    });
    for (int rank = 0; rank < 4; ++rank) processes.AwaitFormed(rank);
    const absl::Time killed = absl::Now();
    processes.Kill(2);
    for (const int rank : {0, 1, 3}) {
      const std::string result = processes.Result(rank);
      EXPECT_THAT(result, HasSubstr("UNAVAILABLE"));
      EXPECT_THAT(result, HasSubstr("w2 (rank 2)"));
    }
    EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  }
  EXPECT_EQ(SharedMemoryNames(), before);
}

TEST(ShmProcesses, KillingEveryRankLeavesNothingBehind) {
  const std::set<std::string> before = SharedMemoryNames();
  {
    Processes processes(2, MakeShm, [](int rank, Transport& transport) -> std::string {
      if (!transport.Allocate(ArenaUse::kParameters, DType::kFloat32, 1 << 20).ok()) return "no memory";
      pause();
      return "not killed";
    });
    for (int rank = 0; rank < 2; ++rank) processes.AwaitFormed(rank);
  }
  EXPECT_EQ(SharedMemoryNames(), before);
}

TEST(ShmProcesses, ADisagreementIsNamedAcrossProcesses) {
  Processes processes(2, MakeShm, [](int rank, Transport& transport) {
    float value = static_cast<float>(rank);
    const TensorView view = {
        .spec = {.name = rank == 0 ? "mean" : "average", .dtype = DType::kFloat32},
        .data = reinterpret_cast<std::byte*>(&value)};
    const absl::Status status = transport.Broadcast(std::span(&view, 1), 0);
    return absl::StrCat(value, " ", status.ToString());
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string result = processes.Result(rank);
    EXPECT_THAT(result, testing::StartsWith(absl::StrCat(rank, " INVALID_ARGUMENT")));
    EXPECT_THAT(result, HasSubstr("tensor 'mean': float32[] by broadcast from rank 0 on w0 (rank 0), "
                                  "absent on w1"));
  }
}

}  // namespace
}  // namespace lockstep
