// The kinds of transport that a session can choose from.
#ifndef LOCKSTEP_WORKER_SESSION_TRANSPORTS_H_
#define LOCKSTEP_WORKER_SESSION_TRANSPORTS_H_

#include <memory>

#include "worker/session/session_options.h"
#include "worker/transport/transport.h"

namespace lockstep {

// The factory that `options`, which are valid, name.
std::unique_ptr<TransportFactory> MakeTransports(const SessionOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_SESSION_TRANSPORTS_H_
