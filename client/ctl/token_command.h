// lockstepctl token new: a bearer token, and the line by which a coordinator knows it.
#ifndef LOCKSTEP_CLIENT_CTL_TOKEN_COMMAND_H_
#define LOCKSTEP_CLIENT_CTL_TOKEN_COMMAND_H_

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// As AddJobCommands().
void AddTokenCommands(CLI::App* app, Context* context, Command* chosen);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_TOKEN_COMMAND_H_
