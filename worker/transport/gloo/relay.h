// Relay: a broadcast as messages that ranks pass on while the next ones arrive.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_RELAY_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_RELAY_H_

#include "absl/status/status.h"
#include "common/base/mono_time.h"
#include "worker/transport/gloo/links.h"
#include "worker/transport/gloo/messages.h"

namespace lockstep::gloo_links {

// Several messages go from rank to rank in a ring that begins at the root, so that
// each link carries each byte once; a single one goes from the root to all.
// Errors: as Links::Await().
absl::Status Relay(Links& links, int rank, int world_size, int root, Messages& messages,
                   MonoTime deadline);

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_RELAY_H_
