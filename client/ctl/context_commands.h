// lockstepctl context ...: the connections in the config file.
#ifndef LOCKSTEP_CLIENT_CTL_CONTEXT_COMMANDS_H_
#define LOCKSTEP_CLIENT_CTL_CONTEXT_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// As AddJobCommands().
void AddContextCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CONTEXT_COMMANDS_H_
