#include "client/ctl/connection.h"

#include <algorithm>

#include "client/ctl/options.h"
#include "security/tls_flags.h"

namespace lockstep {
namespace {

constexpr ConnectionSetting kSettings[] = {
    {"coordinator", false, [](Connection& c) -> std::string& { return c.coordinator; }},
    {"tls_certificate", true, [](Connection& c) -> std::string& { return c.tls.certificate; }},
    {"tls_key", true, [](Connection& c) -> std::string& { return c.tls.key; }},
    {"tls_authorities", true, [](Connection& c) -> std::string& { return c.tls.authorities; }},
    {"token_file", true, [](Connection& c) -> std::string& { return c.tls.token; }},
};

}  // namespace

std::string ConnectionSetting::option() const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::span<const ConnectionSetting> ConnectionSettings() { return kSettings; }

void AddConnectionOptions(CLI::App* app, Connection* connection) {
  app->add_option("--coordinator", connection->coordinator, "address of the coordinator")
      ->type_name("HOST:PORT")
      ->default_str(kDefaultCoordinator)
      ->envname("LOCKSTEP_COORDINATOR");
  AddClientTlsFlags(app, &connection->tls);
  for (const ConnectionSetting& setting : kSettings) {
    if (setting.is_path) app->get_option(setting.option())->type_name(kFileType);
  }
}

void FillIn(const CLI::App& app, Connection saved, Connection* connection) {
  for (const ConnectionSetting& setting : kSettings) {
    if (app.get_option(setting.option())->count() > 0) continue;
    setting.in(*connection) = setting.in(saved);
  }
  const bool is_said = app.get_option("--coordinator")->count() > 0;
  if (connection->coordinator.empty() && !is_said) connection->coordinator = kDefaultCoordinator;
}

}  // namespace lockstep
