// Star: small records among the ranks of one epoch over TCP, through rank 0.
//
// For transports whose library cannot say who is missing or gone: ranks meet here
// before they move data. Each rank has one connection, to rank 0, that lives as long as
// the epoch; a connection that breaks is a rank that is gone. No tensor goes this way.
//
//   rank 0:  StarListener::Listen -> address() to the others -> Star::Form
//   others:                                                     Star::Form(address)
//
// Exchange() is used by one thread; Abort() by any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Rank 0's end, before the others know of it.
class StarListener {
 public:
  // On the IPv4 or IPv6 address of `interface`, such as "lo" or "eth0", and a free port.
  // Errors: InvalidArgument: there is no such interface or it has no address.
  static absl::StatusOr<std::unique_ptr<StarListener>> Listen(const std::string& interface);
  virtual ~StarListener() = default;
  // How others reach it: "127.0.0.1:4711 NONCE", where the nonce tells it from another
  // that took its place.
  virtual std::string address() const = 0;
};

class Star {
 public:
  // Called at most once, from a thread of the star: the epoch is over because a rank is
  // gone (Unavailable, named), or because one aborted (with its reason and code). Not called
  // for this rank's own Abort().
  using OnLoss = std::function<void(const absl::Status& why)>;

  // Collective; rank 0 gives its listener, the others its address. Checks that all are of
  // the same epoch and members. Errors: DeadlineExceeded: names who did not come by
  // group.deadline; Unavailable: rank 0 was not reached; FailedPrecondition: of another epoch,
  // other members, or another version.
  static absl::StatusOr<std::unique_ptr<Star>> Form(const Group& group,
                                                    std::unique_ptr<StarListener> listener,
                                                    const std::string& address, OnLoss on_loss);
  virtual ~Star() = default;

  // All ranks' records by rank, of equal size on all; at most 64 KiB each. A barrier.
  // Errors: DeadlineExceeded: names who did not come, the same text on all ranks that wait;
  //   Unavailable: names a rank that is gone; Aborted: a rank aborted, with its reason.
  // After an error every later call returns it.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::span<const std::byte> mine,
                                                            MonoTime deadline) = 0;

  // Ends this rank's waits, and those of all others, with this reason. Idempotent.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_H_
