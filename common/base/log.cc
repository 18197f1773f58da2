#include "common/base/log.h"

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "nlohmann/json.hpp"
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

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

// What lines need that spdlog does not know.
struct Setting {
  Mutex mu;
  std::string process ABSL_GUARDED_BY(mu);
  LogFormat format ABSL_GUARDED_BY(mu) = LogFormat::kText;
  LogFields fields ABSL_GUARDED_BY(mu);
};

// Leaked on purpose, as the logger is.
Setting& TheSetting() {
  static Setting* setting = new Setting;
  return *setting;
}

std::string ToJson(LogLevel level, absl::string_view process, absl::string_view message,
                   const LogFields& fields) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())},
      {"level", NameOf(level)},
      {"process", std::string(process)}};
  if (!fields.job.empty()) line["job"] = fields.job;
  if (fields.epoch >= 0) line["epoch"] = fields.epoch;
  if (fields.rank >= 0) line["rank"] = fields.rank;
  line["message"] = std::string(message);
  return line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
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

void SetUpLog(absl::string_view process, LogLevel least, LogFormat format) {
  const std::string name(process);
  Logger().set_pattern(format == LogFormat::kJson ? "%v"
                                                  : "%Y-%m-%dT%H:%M:%S.%e %^%L%$ " + name + ": %v");
  Logger().set_level(ToSpdlog(least));
  Setting& setting = TheSetting();
  MutexLock lock(&setting.mu);
  setting.process = name;
  setting.format = format;
}

void SetLogFields(const LogFields& fields) {
  Setting& setting = TheSetting();
  MutexLock lock(&setting.mu);
  setting.fields = fields;
}

void Log(LogLevel level, absl::string_view message) {
  LogFields fields;
  {
    Setting& setting = TheSetting();
    MutexLock lock(&setting.mu);
    fields = setting.fields;
  }
  Log(level, message, fields);
}

void Log(LogLevel level, absl::string_view message, const LogFields& fields) {
  if (!Logger().should_log(ToSpdlog(level))) return;
  std::string json;
  {
    Setting& setting = TheSetting();
    MutexLock lock(&setting.mu);
    if (setting.format == LogFormat::kJson) {
      json = ToJson(level, setting.process, message, fields);
      message = json;
    }
  }
  Logger().log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace lockstep
