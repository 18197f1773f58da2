// Sync policies from files or standard input.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_FILES_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/v1/policy.pb.h"

namespace lockstep {

// `path` "-" is standard input. Errors: NotFound: cannot be read;
//   InvalidArgument: too long.
absl::StatusOr<std::string> ReadText(const std::string& path);

// Errors: those of ReadText() and ParsePolicy().
absl::StatusOr<v1::SyncPolicy> ReadPolicy(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_FILES_H_
