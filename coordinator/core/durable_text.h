// What survives a restart, as text: whether a recovered state is the one that lived. For tests.
#ifndef LOCKSTEP_COORDINATOR_CORE_DURABLE_TEXT_H_
#define LOCKSTEP_COORDINATOR_CORE_DURABLE_TEXT_H_

#include <string>

#include "coordinator/core/state.h"

namespace lockstep {

// All that the fold sets, and nothing else; models, plans and policies by their digests.
std::string DurableText(const ClusterState& state);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_DURABLE_TEXT_H_
