#include "client/ctl/config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/ctl/json_text.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxNameBytes = 63;
constexpr char kCurrent[] = "current";
constexpr char kContexts[] = "contexts";

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Wrong(const std::string& path, absl::string_view key, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, ": ", why));
}

absl::Status ReadString(const nlohmann::json& value, const std::string& path,
                        const std::string& key, std::string* out) {
  if (!value.is_string()) {
    return Wrong(path, key, absl::StrCat("is of type ", value.type_name(), "; expected a string"));
  }
  *out = value.get<std::string>();
  if (IsPrintable(*out)) return absl::OkStatus();
  return Wrong(path, key, absl::StrCat("is ", Quoted(*out), "; expected one line of text"));
}

std::string SettingNames() {
  return absl::StrJoin(ConnectionSettings(), ", ",
                       [](std::string* out, const ConnectionSetting& s) { out->append(s.key); });
}

absl::StatusOr<Connection> ReadContext(const nlohmann::json& value, const std::string& path,
                                       const std::string& key) {
  if (!value.is_object()) {
    return Wrong(path, key, absl::StrCat("is of type ", value.type_name(), "; expected an object"));
  }
  Connection connection;
  for (const auto& [name, item] : value.items()) {
    const auto settings = ConnectionSettings();
    const auto setting =
        std::find_if(settings.begin(), settings.end(),
                     [&](const ConnectionSetting& one) { return name == one.key; });
    const std::string item_key = absl::StrCat(key, ".", name);
    if (setting == settings.end()) {
      return Wrong(path, item_key, absl::StrCat("unknown key; expected ", SettingNames()));
    }
    LOCKSTEP_RETURN_IF_ERROR(ReadString(item, path, item_key, &setting->in(connection)));
  }
  return connection;
}

}  // namespace

std::string ConfigPath() {
  if (std::string path = FromEnvironment("LOCKSTEP_CONFIG"); !path.empty()) return path;
  std::string folder = FromEnvironment("XDG_CONFIG_HOME");
  if (folder.empty()) {
    const std::string home = FromEnvironment("HOME");
    if (home.empty()) return "";
    folder = absl::StrCat(home, "/.config");
  }
  return absl::StrCat(folder, "/lockstep/config.json");
}

absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const nlohmann::json all, ParseJsonText(text, path));
  if (!all.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is of type ", all.type_name(), "; expected an object"));
  }
  Config config;
  for (const auto& [key, value] : all.items()) {
    if (key == kCurrent) {
      LOCKSTEP_RETURN_IF_ERROR(ReadString(value, path, key, &config.current));
    } else if (key == kContexts && value.is_object()) {
      for (const auto& [name, context] : value.items()) {
        const std::string name_key = absl::StrCat(key, ".", name);
        const absl::Status is_name = CheckContextName(name);
        if (!is_name.ok()) return Wrong(path, key, is_name.message());
        LOCKSTEP_ASSIGN_OR_RETURN(config.contexts[name], ReadContext(context, path, name_key));
      }
    } else if (key == kContexts) {
      return Wrong(path, key,
                   absl::StrCat("is of type ", value.type_name(), "; expected an object"));
    } else {
      return Wrong(path, key, "unknown key; expected current, contexts");
    }
  }
  return config;
}

std::string RenderConfig(const Config& config) {
  nlohmann::json all;
  if (!config.current.empty()) all[kCurrent] = config.current;
  all[kContexts] = nlohmann::json::object();
  for (const auto& [name, context] : config.contexts) {
    nlohmann::json& object = all[kContexts][name] = nlohmann::json::object();
    Connection connection = context;
    for (const ConnectionSetting& setting : ConnectionSettings()) {
      if (const std::string& value = setting.in(connection); !value.empty()) {
        object[setting.key] = value;
      }
    }
  }
  return absl::StrCat(all.dump(2), "\n");
}

absl::StatusOr<Config> ReadConfig(const std::string& path) {
  if (path.empty()) return Config{};
  absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return Config{};
  LOCKSTEP_RETURN_IF_ERROR(text.status());
  return ParseConfig(*text, path);
}

absl::Status WriteConfig(const std::string& path, const Config& config) {
  if (path.empty()) {
    return absl::FailedPreconditionError(
        "there is no place for contexts: neither LOCKSTEP_CONFIG, XDG_CONFIG_HOME nor HOME is set");
  }
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
  const std::string file = target.empty() ? path : target.string();
  // So that the file never is for others to read, not even before it has its name.
  const mode_t before = umask(077);
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  const absl::Status written = WriteFile(file, RenderConfig(config));
  umask(before);
  return written;
}

absl::Status CheckContextName(const std::string& name) {
  const bool is_fine = !name.empty() && name.size() <= kMaxNameBytes &&
                       std::all_of(name.begin(), name.end(), [](unsigned char c) {
                         return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
                       });
  if (is_fine) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(name), " is no name of a context; expected up to ", kMaxNameBytes,
                   " of A-Z, a-z, 0-9, '.', '_' and '-'"));
}

absl::StatusOr<Connection> FindContext(const Config& config, const std::string& path,
                                       const std::string& name) {
  const auto it = config.contexts.find(name);
  if (it == config.contexts.end()) {
    std::vector<std::string> names;
    for (const auto& [known, connection] : config.contexts) names.push_back(known);
    return absl::NotFoundError(absl::StrCat(path.empty() ? "no config file" : path,
                                            ": contexts: there is no ", Quoted(name),
                                            "; there are: ", ListNames(names)));
  }
  Connection connection = it->second;
  for (const ConnectionSetting& setting : ConnectionSettings()) {
    std::string& value = setting.in(connection);
    if (!setting.is_path || value.empty()) continue;
    value = (std::filesystem::path(path).parent_path() / value).lexically_normal().string();
  }
  return connection;
}

}  // namespace lockstep
