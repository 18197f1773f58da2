// Channel: one JSON value per line between the bench and a rank, over a socket.
//
// Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_CHANNEL_H_
#define LOCKSTEP_TESTS_BENCH_CHANNEL_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace lockstep {

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}  // which it closes
  Channel(Channel&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}
  Channel& operator=(Channel&&) = delete;
  ~Channel();

  // Errors: Unavailable: the other side is gone.
  absl::Status Send(const nlohmann::json& message);
  // Errors: Unavailable: the other side is gone. DeadlineExceeded. DataLoss: no
  // JSON.
  absl::StatusOr<nlohmann::json> Receive(absl::Duration timeout);

 private:
  int fd_;
  std::string received_;  // and not yet returned
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_CHANNEL_H_
