// An option of the command line that is a duration.
#ifndef LOCKSTEP_CLIENT_CTL_DURATION_OPTION_H_
#define LOCKSTEP_CLIENT_CTL_DURATION_OPTION_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"

namespace lockstep {

// `*value` outlives parsing. What ParseDuration() refuses is wrong usage.
CLI::Option* AddDuration(CLI::App* app, const std::string& name,
                         std::optional<absl::Duration>* value, const std::string& help);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_DURATION_OPTION_H_
