// What Gloo and c10d throw ends here; and durations as they take them.
//
// Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_TORCH_GUARD_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_TORCH_GUARD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::gloo_links {

inline std::chrono::milliseconds ToMillis(absl::Duration duration) {
  // Below 1 ms Gloo takes it for "no timeout".
  return std::chrono::milliseconds(
      std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1, 24 * 3600 * 1000));
}

// Gloo reports lost peers and timeouts by text only. Errors: DeadlineExceeded,
// Unavailable.
template <typename Fn>  // Fn: () -> void
absl::Status GuardTorch(absl::string_view what, Fn&& fn) {
  try {
    fn();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    const absl::string_view reason = e.what();
    const std::string text = absl::StrCat(what, ": ", reason.substr(0, reason.find('\n')));
    if (absl::StrContains(reason, "imed out") || absl::StrContains(reason, "imeout")) {
      return absl::DeadlineExceededError(text);
    }
    return absl::UnavailableError(text);
  }
}

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_TORCH_GUARD_H_
