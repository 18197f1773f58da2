// The log of a process: one line per event on standard error, by spdlog.
//
// A narrow face, so that files which include torch (and its own copy of fmt)
// can log too. Thread-safe.
#ifndef LOCKSTEP_COMMON_BASE_LOG_H_
#define LOCKSTEP_COMMON_BASE_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the process in each line ("coordinator", "worker-0") and sets the
// least level that is written. Before the first call: no name, kInfo.
void SetUpLog(absl::string_view process, LogLevel least);

void Log(LogLevel level, absl::string_view message);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  Log(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  Log(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  Log(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LOG_H_
