// Effects as lines of text, for golden scripts and digests of whole runs.
#ifndef LOCKSTEP_COORDINATOR_CORE_EFFECTS_TEXT_H_
#define LOCKSTEP_COORDINATOR_CORE_EFFECTS_TEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "coordinator/core/events.h"

namespace lockstep {

std::string RecordText(const Record& record);

// One line per effect, in the order of execution. `stream_name` gives a stream's
// name for people.
std::vector<std::string> EffectLines(const Effects& effects,
                                     const std::function<std::string(StreamId)>& stream_name);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_EFFECTS_TEXT_H_
