// Narrator: what ranks do within a step, in words, for those who read a trace.
#ifndef LOCKSTEP_TESTS_SIM_NARRATOR_H_
#define LOCKSTEP_TESTS_SIM_NARRATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tests/sim/trace.h"
#include "worker/engine/engine_options.h"
#include "worker/transport/transport.h"

namespace lockstep::sim {

// What a rank has come to in `step`: "has prepared step 3: ...".
std::string Sentence(StepPhase phase, std::int64_t step);

// What the trace tells besides what every run's does.
struct Telling {
  bool state = false;  // who keeps what as an epoch begins, and what moves
  bool steps = false;  // phases of steps, and which sums move
};

// A transport that also says what its rank passes to others. `tells` and `trace` outlive it.
std::unique_ptr<Transport> TellPassages(const Telling* tells, Trace* trace,
                                        std::unique_ptr<Transport> transport);

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_NARRATOR_H_
