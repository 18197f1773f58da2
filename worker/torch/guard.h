// Exceptions of LibTorch stop here: they become statuses.
#ifndef LOCKSTEP_WORKER_TORCH_GUARD_H_
#define LOCKSTEP_WORKER_TORCH_GUARD_H_

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// The first line of what LibTorch threw: behind it comes its stack trace.
inline std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Runs `fn`, which returns absl::Status or absl::StatusOr. Errors: those of `fn`;
//   Internal if it throws: `what` failed, and what LibTorch said.
template <typename Fn>
auto GuardTorch(absl::string_view what, Fn&& fn) -> decltype(fn()) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const std::exception& error) {  // c10::Error is one
    return absl::InternalError(absl::StrCat(what, " failed: ", FirstLine(error)));
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TORCH_GUARD_H_
