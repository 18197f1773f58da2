// lockstepctl checkpoint: what lies in a directory of checkpoints; no coordinator is asked.
#ifndef LOCKSTEP_CLIENT_CTL_CHECKPOINT_COMMANDS_H_
#define LOCKSTEP_CLIENT_CTL_CHECKPOINT_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"
#include "client/ctl/job_commands.h"

namespace lockstep {

void AddCheckpointCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CHECKPOINT_COMMANDS_H_
