// lockstepctl completion, and two hidden commands: complete, which scripts for completion call,
// and docs, which prints docs/cli.md.
#ifndef LOCKSTEP_CLIENT_CTL_SHELL_COMMANDS_H_
#define LOCKSTEP_CLIENT_CTL_SHELL_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// As AddJobCommands().
void AddShellCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_SHELL_COMMANDS_H_
