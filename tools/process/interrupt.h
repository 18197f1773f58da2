// Interrupt: whether this process was asked to end. For programs that then end what they have
// started before they end themselves.
#ifndef LOCKSTEP_TOOLS_PROCESS_INTERRUPT_H_
#define LOCKSTEP_TOOLS_PROCESS_INTERRUPT_H_

#include <atomic>

namespace lockstep {

// True once SIGINT or SIGTERM came; from the first call on they do nothing else. Any thread.
const std::atomic<bool>& CatchInterrupts();

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_PROCESS_INTERRUPT_H_
