#include "tests/bench/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lockstep {
namespace {

constexpr char kGone[] = "the other side has closed the channel";

}  // namespace

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Channel::Send(const nlohmann::json& message) {
  const std::string line = message.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError(absl::StrCat(kGone, ": ", strerror(errno)));
    sent += static_cast<std::size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> Channel::Receive(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    if (const std::size_t newline = received_.find('\n'); newline != std::string::npos) {
      nlohmann::json message =
          nlohmann::json::parse(received_.substr(0, newline), nullptr, /*allow_exceptions=*/false);
      received_.erase(0, newline + 1);
      if (!message.is_object()) return absl::DataLossError("a line of the channel is no JSON object");
      return message;
    }
    const absl::Duration left = std::clamp(end - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd poll_fd = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) {
      if (left > absl::ZeroDuration()) continue;
      return absl::DeadlineExceededError(
          absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
    }
    char piece[4096];
    const ssize_t n = recv(fd_, piece, sizeof(piece), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError(kGone);
    received_.append(piece, static_cast<std::size_t>(n));
  }
}

}  // namespace lockstep
