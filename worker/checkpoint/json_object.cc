#include "worker/checkpoint/json_object.h"

#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Text that is found goes into messages, which may not become as long as it.
std::string Shown(const json& value) {
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace

absl::StatusOr<json> ParseJson(absl::string_view text) {
  std::string problem;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
        names.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= kMaxJsonDepth && problem.empty()) {
          problem = absl::StrCat("more than ", kMaxJsonDepth, " objects and arrays in each other");
        }
        return problem.empty();
      case json::parse_event_t::key: {
        const std::string& name = value.get_ref<const std::string&>();
        if (!names.back().insert(name).second && problem.empty()) {
          problem = absl::StrCat("member ", Quoted(name), " twice in one object");
        }
        return problem.empty();
      }
      case json::parse_event_t::object_end:
        names.pop_back();
        [[fallthrough]];
      default:
        return problem.empty();
    }
  };
  try {
    json parsed = json::parse(text.begin(), text.end(), check);
    if (!problem.empty()) return absl::DataLossError(absl::StrCat("the JSON has ", problem));
    return parsed;
  } catch (const json::exception& error) {
    return absl::DataLossError(
        absl::StrCat("expected JSON, found ", Quoted(absl::string_view(error.what()))));
  }
}

bool ReadInteger(const json& value, std::int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    return false;
  }
  *out = value.get<std::int64_t>();
  return true;
}

absl::StatusOr<JsonObject> JsonObject::Of(const json& value, std::string what) {
  if (value.is_object()) return JsonObject(value, std::move(what));
  return absl::DataLossError(
      absl::StrCat(what, " is ", Shown(value), "; expected an object"));
}

absl::StatusOr<const json*> JsonObject::Find(const char* name) const {
  const auto at = value_->find(name);
  if (at != value_->end()) return &*at;
  return absl::DataLossError(absl::StrCat(what_, " has no member '", name, "'; expected one"));
}

absl::Status JsonObject::Wrong(const char* name, const json& found,
                               absl::string_view expected) const {
  return absl::DataLossError(
      absl::StrCat(what_, ".", name, " is ", Shown(found), "; expected ", expected));
}

absl::Status JsonObject::Read(const char* name, std::int64_t* out) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  if (ReadInteger(*found, out)) return absl::OkStatus();
  return Wrong(name, *found, "an integer of 63 bits");
}

absl::Status JsonObject::Read(const char* name, double* out) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  if (!found->is_number()) return Wrong(name, *found, "a number");
  *out = found->get<double>();
  return absl::OkStatus();
}

absl::Status JsonObject::Read(const char* name, bool* out) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  if (!found->is_boolean()) return Wrong(name, *found, "true or false");
  *out = found->get<bool>();
  return absl::OkStatus();
}

absl::Status JsonObject::Read(const char* name, std::string* out) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  if (!found->is_string()) return Wrong(name, *found, "a text");
  *out = found->get<std::string>();
  return absl::OkStatus();
}

absl::StatusOr<const json*> JsonObject::Array(const char* name) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  if (!found->is_array()) return Wrong(name, *found, "an array");
  return found;
}

absl::StatusOr<JsonObject> JsonObject::Object(const char* name) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const json* found, Find(name));
  return Of(*found, absl::StrCat(what_, ".", name));
}

}  // namespace lockstep
