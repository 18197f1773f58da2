#include "worker/session/transports.h"

#include "worker/transport/shm/shm_transport.h"

namespace lockstep {

std::unique_ptr<TransportFactory> MakeTransports(const SessionOptions& options) {
  return std::make_unique<ShmFactory>();
}

}  // namespace lockstep
