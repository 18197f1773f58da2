// Connection: where a coordinator is and how to speak to it, and the options that say so.
//
// Plain values; thread-compatible.
#ifndef LOCKSTEP_CLIENT_CTL_CONNECTION_H_
#define LOCKSTEP_CLIENT_CTL_CONNECTION_H_

#include <span>
#include <string>

#include "CLI/CLI.hpp"
#include "security/tls_files.h"

namespace lockstep {

inline constexpr char kDefaultCoordinator[] = "127.0.0.1:7070";

// Empty: not said.
struct Connection {
  std::string coordinator;  // HOST:PORT
  TlsFiles tls;
};

// One of them, under its name in the config file. Its option is the same with dashes.
struct ConnectionSetting {
  const char* key;
  bool is_path;
  std::string& (*in)(Connection& connection);

  std::string option() const;  // "--tls-key"
};
std::span<const ConnectionSetting> ConnectionSettings();

// An option for each, also taken from the environment. `*connection` outlives parsing.
void AddConnectionOptions(CLI::App* app, Connection* connection);

// Takes from `saved` what neither the command line nor the environment said to the options
// of `app`, then the default.
void FillIn(const CLI::App& app, Connection saved, Connection* connection);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_CONNECTION_H_
