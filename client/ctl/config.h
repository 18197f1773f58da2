// Config: the contexts that lockstepctl knows, each a connection under a name, as a JSON file:
//
//   {"current": "prod", "contexts": {"prod": {"coordinator": "host:7070"}}}
//
// The keys of a context are those of ConnectionSettings(). Every error names the file and the
// key. Thread-compatible; WriteConfig() not while other threads make files.
#ifndef LOCKSTEP_CLIENT_CTL_CONFIG_H_
#define LOCKSTEP_CLIENT_CTL_CONFIG_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/ctl/connection.h"

namespace lockstep {

struct Config {
  std::string current;  // empty: none
  std::map<std::string, Connection> contexts;
};

// $LOCKSTEP_CONFIG, else lockstep/config.json in $XDG_CONFIG_HOME or ~/.config; empty if none
// of them is set.
std::string ConfigPath();

// Errors: InvalidArgument: malformed, or a key or value that no config has.
absl::StatusOr<Config> ParseConfig(const std::string& text, const std::string& path);

// ParseConfig() makes the same of it. Ends with a line break.
std::string RenderConfig(const Config& config);

// A file that is not there, or an empty path, is an empty config. Errors: those of ReadFile()
// and ParseConfig().
absl::StatusOr<Config> ReadConfig(const std::string& path);

// Whole or not at all; for nobody else to read (mode 0600). Makes the folder; follows links.
// Errors: those of the system, with the path; FailedPrecondition: the path is empty.
absl::Status WriteConfig(const std::string& path, const Config& config);

// Up to 63 of A-Z, a-z, 0-9, '.', '_' and '-'. Errors: InvalidArgument.
absl::Status CheckContextName(const std::string& name);

// The context, relative paths in it taken from the folder of `path`. Errors: NotFound lists
// those that there are.
absl::StatusOr<Connection> FindContext(const Config& config, const std::string& path,
                                       const std::string& name);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CONFIG_H_
