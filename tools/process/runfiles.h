// Where Bazel put the files that a program was built with.
#ifndef LOCKSTEP_TOOLS_PROCESS_RUNFILES_H_
#define LOCKSTEP_TOOLS_PROCESS_RUNFILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// The absolute path of `path`, "lockstep/worker/trainer/worker" or
// "mnist/package/data/...": the workspace's name comes first.
// Works in tests, under `bazel run`, and for a binary started from bazel-bin.
// Errors: NotFound: says where it was looked for.
absl::StatusOr<std::string> FindRunfile(absl::string_view path);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_PROCESS_RUNFILES_H_
