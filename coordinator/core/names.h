// What jobs and workers may be called.
#ifndef LOCKSTEP_COORDINATOR_CORE_NAMES_H_
#define LOCKSTEP_COORDINATOR_CORE_NAMES_H_

#include "absl/strings/string_view.h"

namespace lockstep {

inline constexpr char kJobNameRule[] =
    "a job's name is 1 to 63 of a-z, 0-9 and '-', starting with a letter";
bool IsJobName(absl::string_view name);

inline constexpr char kWorkerNameRule[] =
    "a worker's name is 1 to 253 of letters, digits, '-', '.' and '_'";
bool IsWorkerName(absl::string_view name);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_NAMES_H_
