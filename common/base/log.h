// The log of a process: one line per event on standard error, by spdlog; for people, or as JSON.
//
// A narrow face, so that files which include torch (and its own copy of fmt)
// can log too. Thread-safe.
#ifndef LOCKSTEP_COMMON_BASE_LOG_H_
#define LOCKSTEP_COMMON_BASE_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// kJson: one object per line: "time" (UTC), "level" ("debug", "info", "warning", "error"),
// "process", "message", and those of LogFields that are known.
enum class LogFormat { kText, kJson };

// What a line is about, for who searches lines by it. Texts name it in their own words.
struct LogFields {
  std::string job;          // empty: unknown
  std::int64_t epoch = -1;  // -1: unknown, as rank
  std::int64_t rank = -1;

  bool operator==(const LogFields&) const = default;
};

// Names the process in each line ("coordinator", "worker-0") and sets the
// least level that is written. Before the first call: no name, kInfo, text.
void SetUpLog(absl::string_view process, LogLevel least, LogFormat format = LogFormat::kText);

// What all lines of this process are about from now on, unless they say otherwise.
void SetLogFields(const LogFields& fields);

void Log(LogLevel level, absl::string_view message);
void Log(LogLevel level, absl::string_view message, const LogFields& fields);

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
