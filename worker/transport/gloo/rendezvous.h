// Rendezvous: the store that the ranks of an epoch find each other by, and by
// which they say after a fault who is there.
//
// Rank 0 serves it. Functions may be called from any thread.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_RENDEZVOUS_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_RENDEZVOUS_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/transport/transport.h"

namespace lockstep::gloo_links {

// Rank 0 listens on the interface; the others connect to the endpoint it gave.
// Errors: FailedPrecondition: there is no such interface; InvalidArgument: the
//   endpoint is no address; DeadlineExceeded, Unavailable, and those of `exchange`.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const Group& group,
                                                          const std::string& interface,
                                                          const ExchangeEndpoint& exchange);

// What a rank that met with a fault does: says in the store that it is there and what
// came up, then looks for half a second who else is there. The store may hang with its
// host; nothing here waits longer for it than a second.
class RollCall {
 public:
  // Returns when this rank has said so.
  RollCall(c10::intrusive_ptr<c10d::Store> store, const Group& group, absl::Status fault);

  // Waits for the others. The fault of the rank that spoke first, as it is what the
  // others then meet with: a rank's own abort as it is, any other with the ranks that
  // are missing.
  absl::Status Result();

 private:
  struct Roll;

  const std::vector<std::string> members_;
  const absl::Status fault_;
  const std::shared_ptr<Roll> roll_;
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_RENDEZVOUS_H_
