// JSON that a person wrote. Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_JSON_TEXT_H_
#define LOCKSTEP_CLIENT_CTL_JSON_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lockstep {

// Errors: InvalidArgument: malformed, at SOURCE:LINE:COLUMN.
absl::StatusOr<nlohmann::json> ParseJsonText(const std::string& text, const std::string& source);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_JSON_TEXT_H_
