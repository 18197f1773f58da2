#include "client/ctl/context_commands.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/config.h"
#include "client/ctl/options.h"
#include "client/ctl/table.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

nlohmann::json JsonOf(const std::string& name, Connection connection) {
  nlohmann::json json = {{"name", name}};
  for (const ConnectionSetting& setting : ConnectionSettings()) {
    json[setting.key] = setting.in(connection);
  }
  return json;
}

void PrintJson(const nlohmann::json& json) { Print(absl::StrCat(json.dump(2), "\n")); }

// The one that commands take their connection from, if there is one.
const std::string& ChosenName(const Context& context, const Config& config) {
  return context.name.empty() ? config.current : context.name;
}

ExitCode ListContexts(const Context& context) {
  const absl::StatusOr<Config> config = ReadConfig(context.config_path);
  if (!config.ok()) return FailConfig(config.status());
  const std::string& chosen = ChosenName(context, *config);
  Table table({{.title = ""}, {.title = "NAME"}, {.title = "COORDINATOR"}, {.title = "TLS"},
               {.title = "TOKEN"}});
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, connection] : config->contexts) {
    table.AddRow({name == chosen ? "*" : "", name, connection.coordinator,
                  connection.tls.empty() ? "no" : "yes",
                  connection.tls.token.empty() ? "no" : "yes"});
    all.push_back(JsonOf(name, connection));
  }
  if (context.json) {
    PrintJson({{"file", context.config_path}, {"current", config->current}, {"contexts", all}});
  } else {
    Print(table.ToString());
  }
  return ExitCode::kOk;
}

ExitCode ShowContext(const Context& context, const std::string& argument) {
  const absl::StatusOr<Config> config = ReadConfig(context.config_path);
  if (!config.ok()) return FailConfig(config.status());
  const std::string name = argument.empty() ? ChosenName(context, *config) : argument;
  if (name.empty()) return FailUsage("context show: there is no current context; name one");
  absl::StatusOr<Connection> connection = FindContext(*config, context.config_path, name);
  if (!connection.ok()) return FailConfig(connection.status());
  if (context.json) {
    PrintJson(JsonOf(name, *connection));
    return ExitCode::kOk;
  }
  Table table({{.title = "SETTING"}, {.title = "VALUE"}});
  for (const ConnectionSetting& setting : ConnectionSettings()) {
    const std::string& value = setting.in(*connection);
    table.AddRow({setting.key, value.empty() ? "-" : value});
  }
  Print(table.ToString());
  return ExitCode::kOk;
}

// Reads the config, has `change` change it and writes it, if `change` returns OK.
template <typename Change>
ExitCode ChangeConfig(const Context& context, const Change& change) {
  absl::StatusOr<Config> config = ReadConfig(context.config_path);
  if (!config.ok()) return FailConfig(config.status());
  if (const absl::Status changed = change(*config); !changed.ok()) return FailConfig(changed);
  const absl::Status written = WriteConfig(context.config_path, *config);
  return written.ok() ? ExitCode::kOk : Fail(written);
}

struct SetFlags {
  std::string name;
  Connection connection;
};

ExitCode SetContext(const Context& context, const SetFlags& flags, const CLI::App& command) {
  Connection named = flags.connection;
  Connection connection;
  bool is_named = false;
  const ExitCode code = ChangeConfig(context, [&](Config& config) {
    const absl::Status is_name = CheckContextName(flags.name);
    if (!is_name.ok()) return is_name;
    Connection& saved = config.contexts[flags.name];
    for (const ConnectionSetting& setting : ConnectionSettings()) {
      if (command.get_option(setting.option())->count() == 0) continue;
      is_named = true;
      std::string& value = setting.in(named);
      // Given from where the person is, not from where the config is.
      if (setting.is_path && !value.empty()) value = std::filesystem::absolute(value).string();
      setting.in(saved) = value;
    }
    connection = saved;
    return is_named ? absl::OkStatus()
                    : absl::InvalidArgumentError(
                          "context set: no setting is named; see `context set --help`");
  });
  if (code != ExitCode::kOk) return code;
  if (context.json) {
    PrintJson(JsonOf(flags.name, connection));
  } else {
    Print(absl::StrCat("context ", flags.name, " is in ", context.config_path, "\n"));
  }
  return code;
}

ExitCode UseContext(const Context& context, const std::string& name) {
  const ExitCode code = ChangeConfig(context, [&](Config& config) {
    config.current = name;
    return FindContext(config, context.config_path, name).status();
  });
  if (code != ExitCode::kOk) return code;
  if (context.json) {
    PrintJson({{"current", name}});
  } else {
    Print(absl::StrCat("context ", name, " is the current one\n"));
  }
  return code;
}

ExitCode DeleteContext(const Context& context, const std::string& name) {
  bool was_current = false;
  const ExitCode code = ChangeConfig(context, [&](Config& config) {
    const absl::Status is_there = FindContext(config, context.config_path, name).status();
    was_current = config.current == name;
    if (was_current) config.current.clear();
    config.contexts.erase(name);
    return is_there;
  });
  if (code != ExitCode::kOk) return code;
  if (context.json) {
    Print("{}\n");
  } else {
    Print(absl::StrCat("deleted context ", name,
                       was_current ? "; there is no current one now\n" : "\n"));
  }
  return code;
}

CLI::Option* AddName(CLI::App* command, std::string* name) {
  return command->add_option("name", *name, "the context's name")->type_name(kContextType);
}

// A command whose only argument is a context.
CLI::App* AddOnContext(CLI::App* app, const std::string& name, const std::string& help,
                       Context* context, Command* chosen,
                       ExitCode (*run)(const Context&, const std::string&)) {
  CLI::App* command = app->add_subcommand(name, help);
  auto argument = std::make_shared<std::string>();
  AddName(command, argument.get());
  command->callback([=] { *chosen = [=] { return run(*context, *argument); }; });
  AddExample(command, absl::StrCat("context ", name, " prod"));
  return command;
}

void AddSet(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "set", "make a context, or change what is named; an empty value removes a setting");
  auto flags = std::make_shared<SetFlags>();
  AddName(command, &flags->name)->required();
  AddConnectionOptions(command, &flags->connection);
  // What happens to be in the environment, or is a default, is not to be saved.
  for (CLI::Option* option : command->get_options()) option->envname("")->default_str("");
  command->callback([=] { *chosen = [=] { return SetContext(*context, *flags, *command); }; });
  AddExample(command, "context set prod --coordinator train.example.org:7070 "
                      "--tls-certificate alice.pem --tls-key alice.key --tls-authorities ca.pem");
}

}  // namespace

void AddContextCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "context", "coordinators by name, in a file: list, show, set, use, delete");
  command->require_subcommand(1);
  command->callback([=] { context->needs_client = false; });
  CLI::App* list = command->add_subcommand("list", "all contexts; *: commands take this one");
  list->callback([=] { *chosen = [=] { return ListContexts(*context); }; });
  AddExample(list, "context list");
  AddOnContext(command, "show", "one context; default: the one that commands take", context,
               chosen, ShowContext);
  AddSet(command, context, chosen);
  AddOnContext(command, "use", "make a context the current one", context, chosen, UseContext)
      ->get_option("name")
      ->required();
  AddOnContext(command, "delete", "forget a context", context, chosen, DeleteContext)
      ->get_option("name")
      ->required();
  // Last: commands begin with the footer that is there when they are added.
  command->footer(
      "Contexts are in $LOCKSTEP_CONFIG, else in lockstep/config.json in $XDG_CONFIG_HOME or "
      "~/.config:\n"
      "  {\"current\": \"prod\", \"contexts\": {\"prod\": {\"coordinator\": \"host:7070\"}}}\n"
      "with coordinator, tls_certificate, tls_key, tls_authorities and token_file in a context. "
      "Relative\npaths are taken from the folder of the file.");
}

}  // namespace lockstep
