// Star: small records among the ranks of one epoch over TCP, through rank 0.
//
// For transports whose library cannot say who is missing or gone: ranks meet here
// before they move data. Each rank has one connection, to rank 0, that lives as long as
// the epoch; a connection that breaks is a rank that is gone. No tensor goes this way.
//
//   rank 0:  StarListener::Listen -> address() to the others -> Star::Form
//   others:                                                     Star::Form(address)
//
// Whoever can reach the port and was given the address is trusted; others are dropped. A
// process that ends is noticed at once, a host that is lost after about ten seconds.
//
// Exchange() is used by one thread at a time; Hasten() and Abort() by any, Abort() also from
// OnLoss.
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
#include "worker/transport/star/forming_stop.h"
#include "worker/transport/transport.h"

namespace lockstep {

// The largest record of one rank.
inline constexpr std::size_t kMaxRecordBytes = 64 << 10;

// Rank 0's end, before the others know of it.
class StarListener {
 public:
  // On the IPv4 or IPv6 address of `interface`, such as "lo" or "eth0", and a free port.
  // Errors: FailedPrecondition: there is no such interface, or it has no address that other
  //   hosts could use; Unavailable: the system gives no port.
  static absl::StatusOr<std::unique_ptr<StarListener>> Listen(const std::string& interface);
  virtual ~StarListener() = default;
  // How others reach it: "127.0.0.1:4711 NONCE", where the nonce tells it from another
  // that took its place.
  virtual std::string address() const = 0;
};

class Star {
 public:
  // Called at most once, from a thread of the star: the epoch is over, with what Exchange()
  // then returns. Also after an Exchange() that has returned it; not for this rank's own
  // Abort(). Must not destroy the star.
  using OnLoss = std::function<void(const absl::Status& why)>;

  // Collective; rank 0 gives its listener, the others its address. Checks that all are of
  // the same epoch and members. Errors:
  //   DeadlineExceeded: names who did not come by group.deadline, the same text on all that
  //     did.
  //   Unavailable: rank 0 was not reached, or a rank went away meanwhile, named.
  //   FailedPrecondition: ranks are of different epochs or members, on all of them; or what
  //     listens at the address is another rank 0 or of another release, on this rank alone.
  //   InvalidArgument: the group or the address is none.
  //   That of `stop`, of this rank or of another that had reached rank 0.
  // `on_loss` and `stop` may be null.
  static absl::StatusOr<std::unique_ptr<Star>> Form(const Group& group,
                                                    std::unique_ptr<StarListener> listener,
                                                    const std::string& address, OnLoss on_loss,
                                                    const FormingStop* stop = nullptr);
  // Leaves the epoch: peers get an error when they want to meet again. May take a second
  // if a peer does not read.
  virtual ~Star() = default;

  // All ranks' records by rank, of equal size on all; at most kMaxRecordBytes each. A
  // barrier. Errors, the same on all ranks that wait:
  //   DeadlineExceeded: names who did not come before the first rank's deadline. If rank 0
  //     does not answer, half a second after it.
  //   Unavailable: names a rank that is gone, or has left.
  //   FailedPrecondition: records of different sizes; InvalidArgument: too large.
  //   That of Abort(), with its code.
  // After an error every later call returns it.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::span<const std::byte> mine,
                                                            MonoTime deadline) = 0;

  // An Exchange() in progress, and those that follow, end by `latest` as by a deadline, until
  // another time is said. For ranks that cannot know before when they are waited for.
  virtual void Hasten(MonoTime latest) = 0;

  // Ends this rank's waits, and those of all others, with this error. Does nothing if the
  // epoch is over.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_STAR_H_
