// JsonCall: a unary call of the API as the path and the JSON of an HTTP request say it. Pure; any
// thread.
#ifndef LOCKSTEP_COORDINATOR_WEB_JSON_CALL_H_
#define LOCKSTEP_COORDINATOR_WEB_JSON_CALL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace lockstep {

struct JsonCall {
  std::unique_ptr<google::protobuf::Message> request;
  std::unique_ptr<google::protobuf::Message> response;  // empty
};

// `path`: "/lockstep.v1.JobService/GetJob". Errors: NotFound: there is no such method;
//   Unimplemented: it streams; InvalidArgument: `json` is none of its request.
absl::StatusOr<JsonCall> ParseJsonCall(absl::string_view path, const std::string& json);

// In protobuf's JSON, with fields that have their defaults.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_WEB_JSON_CALL_H_
