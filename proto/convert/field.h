// Errors that name a field by its path; for the files of this package.
#ifndef LOCKSTEP_PROTO_CONVERT_FIELD_H_
#define LOCKSTEP_PROTO_CONVERT_FIELD_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"

namespace lockstep::convert_internal {

inline absl::Status BadField(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

// Whether the text starts with the path of a field and a colon: "shape[2]: ...".
inline bool StartsWithField(absl::string_view text) {
  const std::size_t path = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  return path != 0 && path != absl::string_view::npos && text[path] == ':';
}

// An error of the message in `field`, with the field put before it.
inline absl::Status InField(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(field, StartsWithField(status.message()) ? "." : ": ",
                                   status.message()));
}
template <typename T>
absl::StatusOr<T> InField(absl::string_view field, absl::StatusOr<T> value) {
  if (!value.ok()) return InField(field, value.status());
  return value;
}

inline absl::Status AtLeast(absl::string_view field, std::int64_t value, std::int64_t least) {
  if (value >= least) return absl::OkStatus();
  return BadField(field, absl::StrCat("is ", value, "; expected at least ", least));
}

inline absl::Status AtMostEntries(absl::string_view field, std::int64_t count, std::int64_t most) {
  if (count <= most) return absl::OkStatus();
  return BadField(field, absl::StrCat("has ", count, " entries; at most ", most, " are allowed"));
}

inline absl::Status Present(absl::string_view field, bool is_present) {
  return is_present ? absl::OkStatus() : BadField(field, "is missing");
}

// A name that can be shown: not empty, printable, at most `most` bytes.
inline absl::Status Name(absl::string_view field, absl::string_view name, std::size_t most) {
  if (name.empty()) return BadField(field, "is missing");
  if (name.size() <= most && IsPrintable(name)) return absl::OkStatus();
  return BadField(field, absl::StrCat("is ", Quoted(name), "; expected at most ", most,
                                      " bytes of printable UTF-8"));
}

}  // namespace lockstep::convert_internal

#endif  // LOCKSTEP_PROTO_CONVERT_FIELD_H_
