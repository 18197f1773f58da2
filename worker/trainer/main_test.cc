// The worker program as a process.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/process/child_process.h"

namespace lockstep {
namespace {

// A coordinator that hears of workers and never answers.
class SilentCoordinator {
 public:
  SilentCoordinator() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, any, size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentCoordinator() { close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  bool AwaitConnection(int timeout_ms) {
    pollfd poll_fd = {.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&poll_fd, 1, timeout_ms) == 1;
  }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(Worker, ASignalEndsItWhileItWaitsToJoin) {
  SilentCoordinator coordinator;
  const std::string output = absl::StrCat(std::getenv("TEST_TMPDIR"), "/output");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<ChildProcess> worker,
      ChildProcess::Start({.program = "worker/trainer/worker",
                           .arguments = {"--coordinator", coordinator.address(), "--job", "j",
                                         "--name", "w0", "--data", "external/mnist/package/data"},
                           .output_file = output}));
  ASSERT_TRUE(coordinator.AwaitConnection(40'000));
  worker->Signal(SIGTERM);
  const std::optional<ChildExit> exit = worker->Wait(absl::Seconds(10));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 128 + SIGTERM) << exit->ToString();
  std::ifstream file(output);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}),
              testing::HasSubstr("stopped by signal 15"));
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a GET of `path` from this port of loopback answers, headers included.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(n));
  }
  close(fd);
  return answer;
}

TEST(Worker, ServesMetricsAndHealthWhileItTrains) {
  const std::string output = absl::StrCat(std::getenv("TEST_TMPDIR"), "/scraped");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<ChildProcess> worker,
      ChildProcess::Start({.program = "worker/trainer/worker",
                           .arguments = {"--http", "127.0.0.1:0", "--log-format", "json", "--job",
                                         "j", "--name", "w0", "--model", "mlp", "--epochs",
                                         "1000000", "--data", "external/mnist/package/data"},
                           .output_file = output}));
  const absl::Time give_up = absl::Now() + absl::Seconds(40);
  int port = 0;
  std::string metrics;
  while (absl::Now() < give_up && !absl::StrContains(metrics, "step_seconds_count")) {
    absl::SleepFor(absl::Milliseconds(20));
    if (port == 0) {
      const std::string log = TextOf(output);
      const std::string before = "on http://127.0.0.1:";
      const std::size_t at = log.find(before);
      if (at != std::string::npos) port = std::atoi(log.c_str() + at + before.size());
    } else if (absl::StrContains(Get(port, "/readyz"), " 200 ")) {
      metrics = Get(port, "/metrics");
    }
  }
  EXPECT_THAT(metrics,
              testing::HasSubstr("lockstep_training_world_size{job=\"j\",worker=\"w0\"} 1\n"));
  EXPECT_THAT(TextOf(output), testing::HasSubstr("\"job\":\"j\",\"epoch\":"));
  worker->Signal(SIGTERM);
  const std::optional<ChildExit> exit = worker->Wait(absl::Seconds(10));
  ASSERT_TRUE(exit.has_value());
}

TEST(Worker, ServesOtherHostsWithoutTlsOnlyIfToldSo) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult refused,
      RunProgram({.program = "worker/trainer/worker",
                  .arguments = {"--http", "0.0.0.0:0", "--data", "/none"}},
                 absl::Seconds(20)));
  EXPECT_EQ(refused.exit.code, 1);
  EXPECT_THAT(refused.output,
              testing::AllOf(testing::HasSubstr("no TLS"), testing::HasSubstr("--insecure")));
}

}  // namespace
}  // namespace lockstep
