// lockstepctl job ..., workers and plan, but for watch_command.h.
#ifndef LOCKSTEP_CLIENT_CTL_JOB_COMMANDS_H_
#define LOCKSTEP_CLIENT_CTL_JOB_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// A chosen command puts what it does into `*chosen`. All three outlive parsing
// and running.
void AddJobCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_JOB_COMMANDS_H_
