// What every fuzz target is: one function that takes any bytes, reads them as an input from
// outside, and holds what comes of it against what the code promises. And helpers to write one.
//
// Each target defines CheckPromises() in its own <name>_promises.cc, whose first comment says how
// bytes are read and what is promised. Pure functions.
#ifndef LOCKSTEP_TESTS_FUZZ_PROMISES_H_
#define LOCKSTEP_TESTS_FUZZ_PROMISES_H_

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// How far an input came.
enum class Reached {
  kUnread,   // nothing of the kind that the target is about
  kRefused,  // with an error that the code may answer
  kChecked,  // accepted, and all promises were checked
};

// Defined by the target. Errors: Internal: the promise that was broken, and on what.
absl::StatusOr<Reached> CheckPromises(absl::string_view bytes);

// OK if `holds`, else Internal.
absl::Status Holds(bool holds, absl::string_view promise, absl::string_view on);

// OK if `status` is, or is an error of one of the `codes` with a message that can be shown on one
// line, else Internal. `of`: which function answered it.
absl::Status IsOkOr(std::initializer_list<absl::StatusCode> codes, const absl::Status& status,
                    absl::string_view of);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_FUZZ_PROMISES_H_
