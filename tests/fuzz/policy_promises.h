// What holds for every sync policy, whoever sends it: from the wire to the rule
// that decides on a buffer. Each promise is restated naively and compared.
//
// Pure functions.
#ifndef LOCKSTEP_TESTS_FUZZ_POLICY_PROMISES_H_
#define LOCKSTEP_TESTS_FUZZ_POLICY_PROMISES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// How far an input came.
enum class Reached {
  kNoMessage,  // not a SyncPolicy in the form that it claims
  kRefused,    // with InvalidArgument
  kCompiled,   // all promises were checked
};

// Reads `bytes` as policy_input.h says. Errors: Internal: the promise that was
// broken, and on what.
absl::StatusOr<Reached> CheckPolicyPromises(absl::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_FUZZ_POLICY_PROMISES_H_
