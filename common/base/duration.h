// Durations as people write them on command lines. Pure; thread-safe.
#ifndef LOCKSTEP_COMMON_BASE_DURATION_H_
#define LOCKSTEP_COMMON_BASE_DURATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep {

// "10s", "500ms", "1m30s"; a bare number counts seconds. Finite, not negative.
// Errors: InvalidArgument: anything else.
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_DURATION_H_
