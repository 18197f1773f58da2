// Scripts for shells that complete a command line of this program. Pure; thread-safe.
//
// What can be completed is in the script; names of jobs, workers and contexts are asked of
// the program itself, by its hidden command `complete`.
#ifndef LOCKSTEP_CLIENT_CTL_COMPLETION_H_
#define LOCKSTEP_CLIENT_CTL_COMPLETION_H_

#include <string>

#include "CLI/CLI.hpp"

namespace lockstep {

// For bash 4 and later.
std::string BashCompletion(const CLI::App& root);
std::string ZshCompletion(const CLI::App& root);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_COMPLETION_H_
