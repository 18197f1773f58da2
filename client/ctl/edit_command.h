// lockstepctl policy edit.
#ifndef LOCKSTEP_CLIENT_CTL_EDIT_COMMAND_H_
#define LOCKSTEP_CLIENT_CTL_EDIT_COMMAND_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"
#include "client/ctl/job_commands.h"

namespace lockstep {

// As AddJobCommands().
void AddEditCommand(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_EDIT_COMMAND_H_
