#include "worker/transport/star/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep::star {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// A host that is gone says nothing: probes find it after about ten seconds.
constexpr int kSilenceSeconds = 5;
constexpr int kProbeSeconds = 1;
constexpr int kProbes = 5;

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Of numbers only: no name is looked up.
absl::StatusOr<AddressList> Resolve(absl::string_view host, absl::string_view port) {
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) host = "";
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  // No host at all would mean this one.
  if (host.empty() || port.empty() ||
      getaddrinfo(std::string(host).c_str(), std::string(port).c_str(), &hints, &list) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(absl::StrCat(host, ":", port)), " is no address with a port"));
  }
  return AddressList(list, &freeaddrinfo);
}

std::string PortOf(const sockaddr* address, socklen_t size) {
  char port[NI_MAXSERV] = {};
  getnameinfo(address, size, nullptr, 0, port, sizeof(port), NI_NUMERICSERV);
  return port;
}

void SetOption(int fd, int level, int name, int value) {
  // At worst the connection is slower, or a lost host is found later.
  setsockopt(fd, level, name, &value, sizeof(value));
}

void Prepare(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kSilenceSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Fd::~Fd() {
  if (valid()) close(fd_);
}

absl::StatusOr<Fd> ListenOn(const std::string& address, std::string* endpoint) {
  LOCKSTEP_ASSIGN_OR_RETURN(const AddressList list, Resolve(address, "0"));
  Fd fd(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  auto* name = reinterpret_cast<sockaddr*>(&bound);
  if (!fd.valid() || bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 || getsockname(fd.get(), name, &size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", std::strerror(errno)));
  }
  *endpoint = absl::StrCat(address, ":", PortOf(name, size));
  return fd;
}

Fd Accept(const Fd& listener) {
  Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) Prepare(fd.get());
  return fd;
}

absl::StatusOr<Fd> Connect(const std::string& endpoint, int stop, MonoTime deadline) {
  const std::size_t colon = std::min(endpoint.rfind(':'), endpoint.size());
  const absl::string_view text = endpoint;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const AddressList list,
      Resolve(text.substr(0, colon), text.substr(std::min(colon + 1, text.size()))));
  Fd fd(socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int error = 0;
  if (!fd.valid()) {
    error = errno;
  } else if (connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0) {
    error = errno;
    // Interrupted, it goes on in the background as well.
    if (error == EINPROGRESS || error == EINTR) {
      pollfd fds[] = {{.fd = fd.get(), .events = POLLOUT, .revents = 0},
                      {.fd = stop, .events = POLLIN, .revents = 0}};
      Poll(fds, deadline);
      socklen_t size = sizeof(error);
      if (fds[0].revents == 0) {
        error = ETIMEDOUT;
      } else {
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
  }
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("no connection to ", endpoint, ": ", std::strerror(error)));
  }
  Prepare(fd.get());
  return fd;
}

void Poll(std::span<pollfd> fds, MonoTime deadline) {
  const RealClock clock;
  while (true) {
    // Rounded up, not to wake before the deadline and spin.
    const absl::Duration left = absl::Ceil(deadline - clock.Now(), absl::Milliseconds(1));
    const auto millis = std::clamp<std::int64_t>(absl::ToInt64Milliseconds(left), 0, INT_MAX);
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(millis));
    if (ready >= 0 || errno != EINTR) return;
  }
}

Connection::Connection(Fd socket, std::size_t max_payload)
    : socket_(std::move(socket)), reader_(max_payload) {}

absl::StatusOr<std::optional<Frame>> Connection::Receive() {
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader_.Next());
    if (frame.has_value() || ended_) return frame;
    char buffer[kReadBytes];
    const ssize_t size = recv(fd(), buffer, sizeof(buffer), 0);
    if (size > 0) {
      reader_.Append(absl::string_view(buffer, size));
    } else if (size == 0) {
      ended_ = true;
      end_text_ = "its connection was closed";
    } else if (WouldBlock()) {
      return std::nullopt;
    } else if (errno != EINTR) {
      ended_ = true;
      end_text_ = std::strerror(errno);
    }
  }
}

void Connection::Send(FrameKind kind, absl::string_view payload) {
  if (last_) return;
  AppendFrame(kind, payload, outbox_);
  Flush();
}

void Connection::SendLast(FrameKind kind, absl::string_view payload) {
  if (last_) return;
  AppendFrame(kind, payload, outbox_);
  last_ = true;
  Flush();
}

void Connection::Flush() {
  if (!sending()) return;
  while (sending()) {
    const ssize_t size =
        send(fd(), outbox_.data() + sent_, outbox_.size() - sent_, MSG_NOSIGNAL);
    if (size >= 0) {
      sent_ += size;
    } else if (WouldBlock()) {
      return;
    } else if (errno != EINTR) {
      // The peer does not hear; what it said before is still to be read.
      last_ = true;
      break;
    }
  }
  outbox_.clear();
  sent_ = 0;
  if (last_) shutdown(fd(), SHUT_WR);
}

void Connection::Drain() {
  char buffer[kReadBytes];
  // Bounded: a peer could send for ever.
  for (int i = 0; i < 64 && recv(fd(), buffer, sizeof(buffer), 0) > 0; ++i) {
  }
}

}  // namespace lockstep::star
