// lockstepctl: operates jobs of a coordinator from the command line.
//
// Exit code 0: done; 1: refused or failed; 2: wrong usage; 3: the coordinator
// cannot be reached; 4: a wait timed out.
#include <cstdlib>
#include <memory>
#include <utility>

#include "CLI/CLI.hpp"
#include "client/ctl/checkpoint_commands.h"
#include "client/ctl/context.h"
#include "client/ctl/duration_option.h"
#include "client/ctl/job_commands.h"
#include "client/ctl/policy_commands.h"
#include "security/tls_flags.h"

namespace lockstep {
namespace {

ExitCode Main(int argc, char** argv) {
  Context context;
  Command chosen;
  CLI::App app("Operates training jobs of a Lockstep coordinator.", "lockstepctl");
  app.require_subcommand(1);
  // Global flags may also stand behind the command.
  app.fallthrough();
  app.add_option("--coordinator", context.coordinator, "HOST:PORT of the coordinator")
      ->envname("LOCKSTEP_COORDINATOR")
      ->capture_default_str();
  AddClientTlsFlags(&app, &context.tls);
  app.add_flag("--json", context.json, "print JSON");
  AddDuration(&app, "--timeout", &context.timeout,
              "time to wait for an answer (default 10s), for --wait (1m), or to watch (no "
              "limit), as 500ms, 10s or 2m");
  AddJobCommands(&app, &context, &chosen);
  AddPolicyCommands(&app, &context, &chosen);
  AddCheckpointCommands(&app, &context, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
  if (context.timeout == absl::ZeroDuration()) {
    return FailUsage("--timeout is 0; expected a time above 0, as 500ms, 10s or 2m");
  }
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect(context.coordinator, context.tls);
  if (!client.ok()) return FailUsage(std::string(client.status().message()));
  context.client = *std::move(client);
  return chosen();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // The library's own complaints would repeat what the messages say better.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return static_cast<int>(lockstep::Main(argc, argv));
}
