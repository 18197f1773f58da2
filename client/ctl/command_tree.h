// What a command line offers, read from its CLI::App: for whatever has to know all of it.
//
// Hidden commands and options (those in the group "") are left out. Thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_COMMAND_TREE_H_
#define LOCKSTEP_CLIENT_CTL_COMMAND_TREE_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace lockstep {

struct VisibleCommand {
  std::string path;                          // "job watch"; empty: the program itself
  const CLI::App* app = nullptr;             // as long as the root lives
  std::vector<const CLI::App*> parents;      // from the root on
  std::vector<std::string> commands;         // names of those below it
  std::vector<const CLI::Option*> arguments;  // by position
  std::vector<const CLI::Option*> options;
};

// The root, then what is below it, each before what is below itself.
std::vector<VisibleCommand> VisibleCommands(const CLI::App& root);

// "--at-start", "--no-at-start", "-h".
std::vector<std::string> NamesOf(const CLI::Option& option);

// Not so for flags.
bool TakesValue(const CLI::Option& option);

// Where a value is one of a few: those. Empty: any.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_COMMAND_TREE_H_
