// lockstepctl events.
#ifndef LOCKSTEP_CLIENT_CTL_EVENTS_COMMAND_H_
#define LOCKSTEP_CLIENT_CTL_EVENTS_COMMAND_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// As AddJobCommands().
void AddEventsCommand(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_EVENTS_COMMAND_H_
