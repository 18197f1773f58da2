// Sockets of the star: addresses, listening, and a connection that speaks frames.
//
// Plain POSIX TCP; nothing blocks but Connect(), until its deadline. Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_SOCKET_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_SOCKET_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mono_time.h"
#include "worker/transport/star/frame.h"

namespace lockstep::star {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// On a free port of an address, "127.0.0.1" or "[::1]"; `endpoint` becomes "ADDRESS:PORT".
absl::StatusOr<Fd> ListenOn(const std::string& address, std::string* endpoint);

// Not valid(): nobody waits, or the one who did has gone.
Fd Accept(const Fd& listener);

// Errors: InvalidArgument: no endpoint; Unavailable: not reached before the deadline, or before
// `stop`, a descriptor or -1, could be read.
absl::StatusOr<Fd> Connect(const std::string& endpoint, int stop, MonoTime deadline);

// Waits until one of `fds` is ready or the deadline has passed.
void Poll(std::span<pollfd> fds, MonoTime deadline);

// Frames both ways over one socket.
class Connection {
 public:
  // Of payloads that come.
  Connection(Fd socket, std::size_t max_payload);

  int fd() const { return socket_.get(); }
  void set_max_payload(std::size_t bytes) { reader_.set_max_payload(bytes); }

  // The next frame that has come. Nothing: none has, or the peer ended(). Errors: as of
  // FrameReader.
  absl::StatusOr<std::optional<Frame>> Receive();
  // Nothing more comes: the peer closed, or the connection broke.
  bool ended() const { return ended_; }
  // What there is to say about it: "it closed the connection", "Connection reset by peer".
  const std::string& end_text() const { return end_text_; }

  // Sends what goes at once and keeps the rest for Flush(). If the peer is gone, nothing
  // happens: Receive() tells.
  void Send(FrameKind kind, absl::string_view payload);
  // After it the peer sees the end of the stream; later frames are dropped.
  void SendLast(FrameKind kind, absl::string_view payload);
  void Flush();
  // Bytes wait until the peer reads.
  bool sending() const { return sent_ < outbox_.size(); }
  // Reads and drops what has come, so that closing does not reset the connection, which
  // could overtake what was sent.
  void Drain();

 private:
  Fd socket_;
  FrameReader reader_;
  bool ended_ = false;
  std::string end_text_;
  std::string outbox_;
  std::size_t sent_ = 0;
  bool last_ = false;
};

}  // namespace lockstep::star

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_SOCKET_H_
