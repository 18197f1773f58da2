#include "common/base/duration.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lockstep {

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text) {
  absl::Duration duration = -absl::InfiniteDuration();
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    // A NaN becomes infinite, and is refused with it.
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = -absl::InfiniteDuration();
  }
  if (duration >= absl::ZeroDuration() && duration < absl::InfiniteDuration()) return duration;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.substr(0, 80), "' is no time; write it as 500ms, 10s or 2m"));
}

}  // namespace lockstep
