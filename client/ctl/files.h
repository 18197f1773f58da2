// Protobuf JSON from a file or standard input.
#ifndef LOCKSTEP_CLIENT_CTL_FILES_H_
#define LOCKSTEP_CLIENT_CTL_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace lockstep {

// `path` "-" is standard input. Errors: NotFound: cannot be read;
//   InvalidArgument: not JSON, or with a field that the message does not have.
absl::Status ReadJson(const std::string& path, google::protobuf::Message* message);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_FILES_H_
