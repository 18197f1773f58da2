// Ranks as processes, one of which is killed.
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "worker/transport/conformance/processes.h"
#include "worker/transport/star/star_testing.h"

namespace lockstep::star {
namespace {

using testing::HasSubstr;

// Ranks forked from the test; each forms the star and says "formed", then what `body` says.
class StarProcesses {
 public:
  using Body = std::function<std::string(int rank, Meeting& meeting)>;

  StarProcesses(int n, const Body& body) : meeting_(n), said_(n) {
    for (int rank = 0; rank < n; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        // Only rank 0 listens.
        if (rank != 0) meeting_.listener.reset();
        said_[rank].Send(meeting_.Form(rank).ok() ? "formed" : "not formed");
        said_[rank].Send(body(rank, meeting_));
        _exit(0);
      }
      pids_.push_back(pid);
    }
    meeting_.listener.reset();
    for (Pipe& pipe : said_) EXPECT_EQ(pipe.ReceiveLine(), "formed");
  }
  ~StarProcesses() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  // What all but `victim` say after it was killed, and how long that took.
  std::vector<std::string> Kill(int victim, absl::Duration* took) {
    const absl::Time start = absl::Now();
    kill(pids_[victim], SIGKILL);
    std::vector<std::string> said;
    for (int rank = 0; rank < static_cast<int>(said_.size()); ++rank) {
      if (rank != victim) said.push_back(said_[rank].ReceiveLine());
    }
    *took = absl::Now() - start;
    return said;
  }

 private:
  Meeting meeting_;
  std::vector<Pipe> said_;
  std::vector<pid_t> pids_;
};

class KilledRank : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(EachOfThree, KilledRank, testing::Range(0, 3));

TEST_P(KilledRank, IsNamedToAllWhoComputeWithinASecond) {
  const int victim = GetParam();
  StarProcesses processes(3, [](int rank, Meeting& meeting) {
    return meeting.losses[rank].Await().ToString();
  });
  absl::Duration took;
  for (const std::string& said : processes.Kill(victim, &took)) {
    EXPECT_THAT(said, HasSubstr(absl::StrCat("UNAVAILABLE: w", victim, " (rank ", victim,
                                             ") is gone")));
  }
  EXPECT_LT(took, absl::Seconds(1));
}

TEST_P(KilledRank, IsNamedToAllWhoWait) {
  const int victim = GetParam();
  StarProcesses processes(3, [victim](int rank, Meeting& meeting) {
    if (rank == victim) pause();
    return meeting.Exchange(rank, "x").status().ToString();
  });
  absl::Duration took;
  for (const std::string& said : processes.Kill(victim, &took)) {
    EXPECT_THAT(said, HasSubstr(absl::StrCat("UNAVAILABLE: w", victim, " (rank ", victim,
                                             ") is gone")));
  }
  EXPECT_LT(took, absl::Seconds(1));
}

}  // namespace
}  // namespace lockstep::star
