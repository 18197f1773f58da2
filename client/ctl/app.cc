#include "client/ctl/app.h"

#include <memory>
#include <utility>
#include <vector>

#include "client/ctl/checkpoint_commands.h"
#include "client/ctl/config.h"
#include "client/ctl/context_commands.h"
#include "client/ctl/events_command.h"
#include "client/ctl/job_commands.h"
#include "client/ctl/options.h"
#include "client/ctl/policy_commands.h"
#include "client/ctl/shell_commands.h"
#include "client/ctl/terminal.h"
#include "client/ctl/token_command.h"

namespace lockstep {
namespace {

constexpr char kFooter[] =
    R"(An option that is not given is taken from the environment, then from the context, see
`lockstepctl context --help`, then its default holds.

Exit codes: 0: done; 1: refused or failed; 2: wrong usage or config file; 3: the coordinator
cannot be reached; 4: a wait timed out.)";

}  // namespace

CommandLine::CommandLine() : app_("Operates training jobs of a Lockstep coordinator.",
                                  "lockstepctl") {
  app_.require_subcommand(1);
  // Global flags may also stand behind the command.
  app_.fallthrough();
  app_.add_option("--context", context_.name,
                  "take what is not given from this context; default: the current one")
      ->type_name(kContextType)
      ->envname("LOCKSTEP_CONTEXT");
  AddConnectionOptions(&app_, &context_);
  app_.add_flag("--json", context_.json, "print JSON");
  app_.add_option("--color", color_,
                  "auto: on terminals, unless NO_COLOR is set in the environment")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "always", "never"}))
      ->capture_default_str();
  AddDuration(&app_, "--timeout", &context_.timeout,
              "time to wait for an answer (default 10s), for --wait (1m), or to watch (no "
              "limit), as 500ms, 10s or 2m");
  AddJobCommands(&app_, &context_, &chosen_);
  AddEventsCommand(&app_, &context_, &chosen_);
  AddPolicyCommands(&app_, &context_, &chosen_);
  AddCheckpointCommands(&app_, &context_, &chosen_);
  AddContextCommands(&app_, &context_, &chosen_);
  AddTokenCommands(&app_, &context_, &chosen_);
  AddShellCommands(&app_, &context_, &chosen_);
  // Last: commands begin with the footer that is there when they are added.
  app_.footer(kFooter);
}

ExitCode CommandLine::Run(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app_.exit(e) == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
  if (context_.timeout == absl::ZeroDuration()) {
    return FailUsage("--timeout is 0; expected a time above 0, as 500ms, 10s or 2m");
  }
  context_.color = ChooseColor(color_);
  context_.config_path = ConfigPath();
  const ExitCode prepared = context_.needs_client ? Prepare() : ExitCode::kOk;
  return prepared == ExitCode::kOk ? chosen_() : prepared;
}

ExitCode CommandLine::Prepare() {
  const absl::StatusOr<Config> config = ReadConfig(context_.config_path);
  if (!config.ok()) return FailConfig(config.status());
  const std::string& name = context_.name.empty() ? config->current : context_.name;
  Connection saved;
  if (!name.empty()) {
    absl::StatusOr<Connection> found = FindContext(*config, context_.config_path, name);
    if (!found.ok()) return FailConfig(found.status());
    saved = *std::move(found);
  }
  FillIn(app_, std::move(saved), &context_);
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(context_.coordinator, context_.tls);
  if (!client.ok()) return FailUsage(std::string(client.status().message()));
  context_.client = *std::move(client);
  return ExitCode::kOk;
}

}  // namespace lockstep
