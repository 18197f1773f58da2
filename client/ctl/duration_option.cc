#include "client/ctl/duration_option.h"

#include "common/base/duration.h"

namespace lockstep {

CLI::Option* AddDuration(CLI::App* app, const std::string& name,
                         std::optional<absl::Duration>* value, const std::string& help) {
  const auto read = [=](const std::string& text) {
    const absl::StatusOr<absl::Duration> duration = ParseDuration(text);
    if (!duration.ok()) {
      throw CLI::ValidationError(name, std::string(duration.status().message()));
    }
    *value = *duration;
  };
  return app->add_option_function<std::string>(name, read, help)->type_name("DURATION");
}

}  // namespace lockstep
