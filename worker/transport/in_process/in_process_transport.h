// A transport whose ranks are threads of one process: the reference for all
// others, for tests and simulation. No torch, no files, no sockets.
//
// The last rank to come to an operation performs it for all, in rank order, under
// one lock. Arenas are private to each rank.
#ifndef LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_IN_PROCESS_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_IN_PROCESS_TRANSPORT_H_

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "worker/transport/in_process/hub.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Shared by all ranks. Thread-safe.
class InProcessFactory final : public TransportFactory {
 public:
  std::string name() const override { return "in-process"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;

 private:
  Mutex mu_;
  std::map<Epoch, std::shared_ptr<Hub>> hubs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_IN_PROCESS_TRANSPORT_H_
