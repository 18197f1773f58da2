// Ranks as processes: what threads cannot show.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Bytes one way between processes; both ends live as long as this.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Send(const std::string& line) {
    const std::string bytes = line + "\n";
    EXPECT_EQ(write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  std::string ReceiveLine() {
    std::string line;
    for (char c = 0; read(ends_[0], &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

 private:
  int ends_[2];
};

// Ranks forked from the test; each runs `body` and ends without clean-up.
class Processes {
 public:
  Processes(int world_size, std::function<std::string(int rank, Transport& transport)> body)
      : endpoints_(world_size), formed_(world_size), results_(world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        RunRank(rank, world_size, body);
        _exit(0);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void AwaitFormed(int rank) { EXPECT_EQ(formed_[rank].ReceiveLine(), "formed"); }
  std::string Result(int rank) { return results_[rank].ReceiveLine(); }
  void Kill(int rank) { kill(pids_[rank], SIGKILL); }

 private:
  void RunRank(int rank, int world_size,
               const std::function<std::string(int, Transport&)>& body) {
    Group group = {.epoch = Epoch(5), .rank = rank, .deadline = absl::Seconds(20)};
    for (int r = 0; r < world_size; ++r) group.members.push_back(absl::StrCat("w", r));
    ShmFactory factory;
    auto transport = factory.Create(
        group, [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
          if (!mine.has_value()) return endpoints_[rank].ReceiveLine();
          for (int r = 1; r < world_size; ++r) endpoints_[r].Send(*mine);
          return *mine;
        });
    if (!transport.ok()) {
      formed_[rank].Send(transport.status().ToString());
      return;
    }
    formed_[rank].Send("formed");
    results_[rank].Send(body(rank, **transport));
  }

  std::vector<Pipe> endpoints_;
  std::vector<Pipe> formed_;
  std::vector<Pipe> results_;
  std::vector<pid_t> pids_;
};

std::set<std::string> SharedMemoryNames() {
  std::set<std::string> names;
  DIR* directory = opendir("/dev/shm");
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) names.insert(entry->d_name);
  closedir(directory);
  return names;
}

TEST(ShmProcesses, ReduceAndSpreadAcrossProcesses) {
  Processes processes(3, [](int rank, Transport& transport) -> std::string {
    const std::vector<Shard> shards = {{0, 16}, {16, 32}, {32, 40}};
    const auto gradients = transport.Allocate(ArenaUse::kGradients, 40);
    const auto parameters = transport.Allocate(ArenaUse::kParameters, 40);
    if (!gradients.ok() || !parameters.ok()) return "no arenas";
    if (!parameters->shared) return "not shared";
    std::fill(gradients->values.begin(), gradients->values.end(), 1.0f + rank);
    if (const auto s = transport.ReduceToOwners(*gradients, shards, 1); !s.ok()) {
      return s.ToString();
    }
    for (std::int64_t i = shards[rank].begin; i < shards[rank].end; ++i) {
      parameters->values[i] = gradients->values[i] * 10;
    }
    if (const auto s = transport.BroadcastFromOwners(*parameters, shards); !s.ok()) {
      return s.ToString();
    }
    for (const float value : parameters->values) {
      if (value != 60.0f) return absl::StrCat("value ", value);
    }
    return transport.Agree({}).ok() ? "fine" : "no agreement";
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.Result(rank), "fine");
}

TEST(ShmProcesses, AKilledPeerIsNamedToAllWhoWaitLongBeforeTheDeadline) {
  const std::set<std::string> before = SharedMemoryNames();
  {
    Processes processes(4, [](int rank, Transport& transport) -> std::string {
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
    Processes processes(2, [](int rank, Transport& transport) -> std::string {
      if (!transport.Allocate(ArenaUse::kParameters, 1 << 20).ok()) return "no memory";
      pause();
      return "not killed";
    });
    for (int rank = 0; rank < 2; ++rank) processes.AwaitFormed(rank);
  }
  EXPECT_EQ(SharedMemoryNames(), before);
}

TEST(ShmProcesses, ADisagreementIsNamedAcrossProcesses) {
  Processes processes(2, [](int rank, Transport& transport) {
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
    EXPECT_THAT(result, HasSubstr("tensor 'mean': float32[] on w0 (rank 0), absent on w1"));
  }
}

}  // namespace
}  // namespace lockstep
