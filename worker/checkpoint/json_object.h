// JSON from files that anybody may have changed: parsed without exceptions or surprises, and
// read member by member with errors that say which one. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_JSON_OBJECT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_JSON_OBJECT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace lockstep {

// Objects and arrays in each other, at most.
inline constexpr int kMaxJsonDepth = 16;

// Errors: DataLoss: it is no JSON, not UTF-8, has a member twice, or is deeper than kMaxJsonDepth.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text);

// Reads the members of `value`, which outlives it; `what` it is goes into messages. All errors are
// DataLoss and say what was found and what was expected.
class JsonObject {
 public:
  static absl::StatusOr<JsonObject> Of(const nlohmann::json& value, std::string what);

  // Sets `out`, or leaves it as it is after an error.
  absl::Status Read(const char* name, std::int64_t* out) const;
  absl::Status Read(const char* name, double* out) const;
  absl::Status Read(const char* name, bool* out) const;
  absl::Status Read(const char* name, std::string* out) const;

  absl::StatusOr<const nlohmann::json*> Array(const char* name) const;
  absl::StatusOr<JsonObject> Object(const char* name) const;
  bool Has(const char* name) const { return value_->contains(name); }

  const std::string& what() const { return what_; }

 private:
  JsonObject(const nlohmann::json& value, std::string what)
      : value_(&value), what_(std::move(what)) {}

  absl::StatusOr<const nlohmann::json*> Find(const char* name) const;
  absl::Status Wrong(const char* name, const nlohmann::json& found,
                     absl::string_view expected) const;

  const nlohmann::json* value_;
  std::string what_;
};

// Whether `value` is an integer that fits, which `out` then is.
bool ReadInteger(const nlohmann::json& value, std::int64_t* out);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_JSON_OBJECT_H_
