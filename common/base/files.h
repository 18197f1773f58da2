// Whole files, as text or bytes. What must survive a crash of the host is not written with
// this: see coordinator/store and worker/checkpoint. Any thread.
#ifndef LOCKSTEP_COMMON_BASE_FILES_H_
#define LOCKSTEP_COMMON_BASE_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// Errors: NotFound, PermissionDenied and others as the system says, with the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Whole or not at all: readers see the file as it was, or all of the new one. Errors: the same.
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_FILES_H_
