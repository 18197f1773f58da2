// lockstepctl policy ... and sync.
#ifndef LOCKSTEP_CLIENT_CTL_POLICY_COMMANDS_H_
#define LOCKSTEP_CLIENT_CTL_POLICY_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"
#include "client/ctl/job_commands.h"

namespace lockstep {

// As AddJobCommands().
void AddPolicyCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_POLICY_COMMANDS_H_
