#include "client/ctl/options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"

namespace lockstep {
namespace {

constexpr char kExamples[] = "Examples:\n";

}  // namespace

CLI::Option* AddJob(CLI::App* command, std::string* job) {
  return command->add_option("job", *job, "the job's name")->required()->type_name(kJobType);
}

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

void AddExample(CLI::App* command, const std::string& arguments) {
  std::string footer = command->get_footer();
  if (!absl::StrContains(footer, kExamples)) {
    absl::StrAppend(&footer, footer.empty() ? "" : "\n\n", kExamples);
  } else {
    absl::StrAppend(&footer, "\n");
  }
  command->footer(absl::StrCat(footer, kExampleStart, arguments));
}

}  // namespace lockstep
