// The transport for CPU ranks on several hosts: LibTorch's ProcessGroupGloo.
//
// Gloo checks no layouts and kills the process on some mismatches, so it only
// ever carries contiguous messages whose size all ranks have agreed on. Sums are
// made here, in rank order, from gathered pieces: the bytes on the wire are those
// of Gloo's own reductions (to owners), and results are bit-equal to the other
// transports'.
//
// Gloo cannot cancel: Abort() frees the waiting thread at once, but what was
// under way ends in the background, at its deadline at the latest, and peers
// learn of it from the coordinator or from their own deadline. So keep deadlines
// short. Rank 0 serves the rendezvous; without it no epoch goes on.
//
// SIGPIPE is ignored from the first transport on, unless the process handles it:
// else a killed peer would take this process along.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_

#include <memory>
#include <string>
#include <utility>

#include "worker/transport/transport.h"

namespace lockstep {

struct GlooOptions {
  // The network interface whose IPv4 address peers connect to.
  std::string interface = "lo";
};

// Thread-safe.
class GlooFactory final : public TransportFactory {
 public:
  explicit GlooFactory(GlooOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "gloo"; }
  // Also FailedPrecondition: there is no such interface.
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;

 private:
  const GlooOptions options_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_GLOO_TRANSPORT_H_
