#include "worker/session/transports.h"

#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {

std::unique_ptr<TransportFactory> MakeTransports(const SessionOptions& options) {
  if (options.transport == "gloo") {
    return std::make_unique<GlooFactory>(
        GlooOptions{.interface = options.gloo_interface, .bucket_bytes = options.gloo_bucket_bytes});
  }
  return std::make_unique<ShmFactory>();
}

}  // namespace lockstep
