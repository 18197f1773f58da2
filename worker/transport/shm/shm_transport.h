// The transport for ranks on one host: one shared segment for each epoch.
//
// Parameter arenas are one memory for all ranks, so spreading parameters moves
// no byte. Gradient arenas are one for each rank and all readable by all: an
// owner adds up its range straight from them. Other tensors go through rings of
// pieces that stay in the caches. All sums are in rank order.
//
// Nothing has a name: the kernel frees the segment with the last process that
// holds it, also after SIGKILL. The ranks may be processes or threads; they must
// see each other in /proc (one user, one PID namespace).
#ifndef LOCKSTEP_WORKER_TRANSPORT_SHM_SHM_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_SHM_SHM_TRANSPORT_H_

#include <memory>
#include <string>

#include "worker/transport/transport.h"

namespace lockstep {

// Thread-safe. Also FailedPrecondition: the ranks are not on one host.
class ShmFactory final : public TransportFactory {
 public:
  std::string name() const override { return "shm"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_SHM_SHM_TRANSPORT_H_
