#include "client/ctl/shell_commands.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/ctl/completion.h"
#include "client/ctl/config.h"
#include "client/ctl/markdown.h"
#include "client/ctl/options.h"

namespace lockstep {
namespace {

// A person waits with a key pressed.
constexpr absl::Duration kCompletionTime = absl::Seconds(2);

ExitCode PrintNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) Print(absl::StrCat(name, "\n"));
  return ExitCode::kOk;
}

CallOptions CompletionCall(const Context& context) {
  return {.timeout = context.timeout.value_or(kCompletionTime)};
}

ExitCode CompleteJobs(const Context& context) {
  const auto jobs = context.client->ListJobs(CompletionCall(context));
  if (!jobs.ok()) return Fail(jobs.status());
  std::vector<std::string> names;
  for (const v1::Job& job : *jobs) names.push_back(job.spec().name());
  return PrintNames(names);
}

ExitCode CompleteWorkers(const Context& context, const std::string& job) {
  const auto workers = context.client->ListWorkers(job, CompletionCall(context));
  if (!workers.ok()) return Fail(workers.status());
  std::vector<std::string> names;
  for (const v1::Worker& worker : *workers) names.push_back(worker.name());
  return PrintNames(names);
}

ExitCode CompleteContexts(const Context& context) {
  const absl::StatusOr<Config> config = ReadConfig(context.config_path);
  if (!config.ok()) return FailConfig(config.status());
  std::vector<std::string> names;
  for (const auto& [name, connection] : config->contexts) names.push_back(name);
  return PrintNames(names);
}

void AddComplete(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand("complete", "names, one a line, for completion");
  command->group("")->require_subcommand(1);
  CLI::App* jobs = command->add_subcommand("jobs");
  jobs->callback([=] { *chosen = [=] { return CompleteJobs(*context); }; });
  CLI::App* workers = command->add_subcommand("workers");
  auto job = std::make_shared<std::string>();
  AddJob(workers, job.get());
  workers->callback([=] { *chosen = [=] { return CompleteWorkers(*context, *job); }; });
  CLI::App* contexts = command->add_subcommand("contexts");
  contexts->callback([=] {
    context->needs_client = false;
    *chosen = [=] { return CompleteContexts(*context); };
  });
}

}  // namespace

void AddShellCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* completion = app->add_subcommand(
      "completion", "a script that has a shell complete commands, options and names of jobs");
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh"}));
  completion->footer("bash 4 and later, in ~/.bashrc: source <(lockstepctl completion bash)\n"
                     "zsh, in ~/.zshrc after compinit: source <(lockstepctl completion zsh)");
  completion->callback([=] {
    context->needs_client = false;
    *chosen = [=] {
      Print(*shell == "bash" ? BashCompletion(*app) : ZshCompletion(*app));
      return ExitCode::kOk;
    };
  });
  AddExample(completion, "completion bash");

  CLI::App* docs = app->add_subcommand("docs", "docs/cli.md");
  docs->group("");
  docs->callback([=] {
    context->needs_client = false;
    *chosen = [=] {
      Print(MarkdownOf(*app));
      return ExitCode::kOk;
    };
  });
  AddComplete(app, context, chosen);
}

}  // namespace lockstep
