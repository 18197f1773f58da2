#include "common/base/log.h"

#include <string>

#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace lockstep {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Leaked on purpose: threads may log while the process ends.
spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger(
        "lockstep", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%L%$ %v");
    return made;
  }();
  return *logger;
}

}  // namespace

void SetUpLog(absl::string_view process, LogLevel least) {
  const std::string name(process);
  Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%L%$ " + name + ": %v");
  Logger().set_level(ToSpdlog(least));
}

void Log(LogLevel level, absl::string_view message) {
  Logger().log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace lockstep
