// Without: transports and messages that leave one rule of the product out, so that tests can show
// that the checkers find it. The product has no such switches.
#ifndef LOCKSTEP_TESTS_SIM_WITHOUT_H_
#define LOCKSTEP_TESTS_SIM_WITHOUT_H_

#include <memory>

#include "common/protocol/messages.h"
#include "coordinator/core/state.h"
#include "tests/sim/simulation.h"
#include "worker/transport/transport.h"

namespace lockstep::sim {

std::unique_ptr<Transport> Weaken(Without without, std::unique_ptr<Transport> transport);

// Of kFencing: makes the message one of the job's current epoch, whichever it was said in.
void TakeForCurrent(const ClusterState& state, WorkerMessage& message);

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_WITHOUT_H_
