// CommandLine: lockstepctl as a library: its commands and options, and running one of them.
#ifndef LOCKSTEP_CLIENT_CTL_APP_H_
#define LOCKSTEP_CLIENT_CTL_APP_H_

#include <string>

#include "CLI/CLI.hpp"
#include "client/ctl/context.h"

namespace lockstep {

// Thread-compatible. Commands hold pointers into it: neither copied nor moved.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // What there is to choose from.
  CLI::App& app() { return app_; }

  // Once. Prints what the command prints.
  ExitCode Run(int argc, const char* const* argv);

 private:
  // What the config file says, and a client if the command needs one.
  ExitCode Prepare();

  CLI::App app_;
  Context context_;
  std::string color_ = "auto";
  Command chosen_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_APP_H_
