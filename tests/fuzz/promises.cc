#include "tests/fuzz/promises.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {

absl::Status Holds(bool holds, absl::string_view promise, absl::string_view on) {
  if (holds) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("broken: ", promise, "; on ", Quoted(on)));
}

absl::Status IsOkOr(std::initializer_list<absl::StatusCode> codes, const absl::Status& status,
                    absl::string_view of) {
  if (status.ok()) return status;
  LOCKSTEP_RETURN_IF_ERROR(Holds(std::ranges::find(codes, status.code()) != codes.end(),
                                 absl::StrCat(of, " answers only the errors that it states"),
                                 status.ToString()));
  return Holds(!status.message().empty() && IsPrintable(status.message()),
               absl::StrCat("the message of ", of, " can be shown on one line"),
               status.message());
}

}  // namespace lockstep
