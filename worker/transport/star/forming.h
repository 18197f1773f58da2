// Forming: how the connections of a star come to be.
//
// Rank 0 takes in who connects and says the right Hello; whatever else connects to the port
// is dropped and disturbs nobody. Single-threaded.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/transport/star/forming_stop.h"
#include "worker/transport/star/socket.h"
#include "worker/transport/star/star.h"
#include "worker/transport/transport.h"

namespace lockstep::star {

// How long after its own deadline a rank waits for rank 0 to say who is missing.
inline constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);

// The only StarListener there is.
class Listener final : public StarListener {
 public:
  Listener(Fd socket, std::string endpoint, std::uint64_t nonce)
      : socket_(std::move(socket)), endpoint_(std::move(endpoint)), nonce_(nonce) {}

  std::string address() const override;
  const Fd& socket() const { return socket_; }
  std::uint64_t nonce() const { return nonce_; }

 private:
  const Fd socket_;
  const std::string endpoint_;
  const std::uint64_t nonce_;
};

// DeadlineExceeded: `missing` did not come before this rank's deadline, or, if none is,
// before that of rank `impatient`.
absl::Status LateError(const Group& group, const std::vector<int>& missing, int impatient);
// Unavailable: the rank is gone, and how that was seen.
absl::Status GoneError(const Group& group, int rank, absl::string_view how);

// For rank 0: connections to ranks 1, 2, ..., all of which know that all have come.
// Errors: as of Star::Form(); those who came were told.
absl::StatusOr<std::vector<Connection>> GatherRanks(const Group& group, const Listener& listener,
                                                    const FormingStop& stop);

// For the others: the connection to rank 0, when all have come.
absl::StatusOr<Connection> JoinRankZero(const Group& group, const std::string& address,
                                        const FormingStop& stop);

}  // namespace lockstep::star

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_FORMING_H_
