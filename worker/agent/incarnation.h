// The number that tells one start of a worker from the next.
#ifndef LOCKSTEP_WORKER_AGENT_INCARNATION_H_
#define LOCKSTEP_WORKER_AGENT_INCARNATION_H_

#include "common/base/ids.h"

namespace lockstep {

// Positive; larger than in earlier calls, and than in processes that started at
// least 5 ms earlier by this host's wall clock. Thread-safe.
Incarnation NewIncarnation();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_INCARNATION_H_
