// Options and help that several commands have in common.
#ifndef LOCKSTEP_CLIENT_CTL_OPTIONS_H_
#define LOCKSTEP_CLIENT_CTL_OPTIONS_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"

namespace lockstep {

// What a value is, as help shows it and completion understands it.
inline constexpr char kJobType[] = "JOB";
inline constexpr char kWorkerType[] = "WORKER";
inline constexpr char kContextType[] = "CONTEXT";
inline constexpr char kFileType[] = "FILE";

// The name of a job that is there, as the command's next argument. `*job` outlives parsing.
CLI::Option* AddJob(CLI::App* command, std::string* job);

// An option that takes what ParseDuration() takes. `*value` outlives parsing.
CLI::Option* AddDuration(CLI::App* app, const std::string& name,
                         std::optional<absl::Duration>* value, const std::string& help);

// How each line of an example begins.
inline constexpr char kExampleStart[] = "  lockstepctl ";

// Appends an example to the command's footer: `arguments`, as a shell takes them.
void AddExample(CLI::App* command, const std::string& arguments);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_OPTIONS_H_
