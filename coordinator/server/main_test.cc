// Runs the coordinator binary: port file, signals, exit codes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(20);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A child process whose standard error goes to a file.
class Process {
 public:
  Process(const std::string& name, const std::vector<std::string>& arguments)
      : log_(absl::StrCat(testing::TempDir(), "/", name, ".log")) {
    std::vector<std::string> words = {"coordinator/server/coordinator"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      if (freopen(log_.c_str(), "w", stderr) == nullptr) _exit(126);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (exited_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit code; -1 if a signal ended it, -2 if it still runs at the deadline.
  int AwaitExit() {
    const absl::Time give_up = absl::Now() + kDeadline;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (absl::Now() > give_up) return -2;
      absl::SleepFor(absl::Milliseconds(5));
    }
    exited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string log() const { return ReadFile(log_); }

 private:
  const std::string log_;
  pid_t pid_ = -1;
  bool exited_ = false;
};

// The file appears when the coordinator serves.
std::string AwaitAddress(const std::string& path) {
  const absl::Time give_up = absl::Now() + kDeadline;
  while (absl::Now() < give_up) {
    const std::string text = ReadFile(path);
    if (!text.empty()) return text.substr(0, text.size() - 1);
    absl::SleepFor(absl::Milliseconds(5));
  }
  ADD_FAILURE() << "the coordinator did not write " << path;
  return "";
}

std::string FreshPath(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/", getpid(), "-", name);
}

TEST(CoordinatorProgram, ServesUntilASignalAndThenEndsWithZero) {
  for (int signal : {SIGTERM, SIGINT}) {
    const std::string port_file = FreshPath(absl::StrCat("port", signal));
    Process coordinator(absl::StrCat("serve", signal),
                        {"--listen", "127.0.0.1:0", "--store", FreshPath("store.db"),
                         "--port-file", port_file});
    EXPECT_THAT(AwaitAddress(port_file), testing::MatchesRegex("127.0.0.1:[1-9][0-9]+"));
    coordinator.Signal(signal);
    EXPECT_EQ(coordinator.AwaitExit(), 0) << coordinator.log();
    EXPECT_THAT(coordinator.log(), AllOf(HasSubstr("listening on"), HasSubstr("stopped")));
  }
}

TEST(CoordinatorProgram, EndsWithOneWhenThePortIsTaken) {
  const std::string port_file = FreshPath("port-taken");
  Process first("first",
                {"--listen", "127.0.0.1:0", "--store", ":memory:", "--port-file", port_file});
  Process second("second", {"--listen", AwaitAddress(port_file), "--store", ":memory:"});
  EXPECT_EQ(second.AwaitExit(), 1);
  EXPECT_THAT(second.log(), HasSubstr("cannot listen on"));
}

TEST(CoordinatorProgram, EndsWithTwoOnWrongUsage) {
  Process coordinator("usage", {"--no-such-flag"});
  EXPECT_EQ(coordinator.AwaitExit(), 2);
}

TEST(CoordinatorProgram, ServesOtherHostsWithoutTlsOnlyIfToldSo) {
  Process refused("refused", {"--listen", "0.0.0.0:0", "--store", ":memory:"});
  EXPECT_EQ(refused.AwaitExit(), 1);
  EXPECT_THAT(refused.log(), testing::AllOf(HasSubstr("no TLS"), HasSubstr("--insecure")));
  const std::string port_file = FreshPath("port-open");
  Process coordinator("open", {"--listen", "0.0.0.0:0", "--store", ":memory:", "--insecure",
                               "--port-file", port_file});
  AwaitAddress(port_file);
  coordinator.Signal(SIGTERM);
  EXPECT_EQ(coordinator.AwaitExit(), 0);
  EXPECT_THAT(coordinator.log(), HasSubstr("insecure"));
}

}  // namespace
}  // namespace lockstep
