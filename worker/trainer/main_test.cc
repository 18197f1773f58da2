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

#include "absl/strings/str_cat.h"
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

}  // namespace
}  // namespace lockstep
