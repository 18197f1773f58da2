#include "client/ctl/command_tree.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep {
namespace {

void Append(const CLI::App& app, const std::string& path, std::vector<const CLI::App*> parents,
            std::vector<VisibleCommand>& all) {
  VisibleCommand command = {.path = path, .app = &app, .parents = parents};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? command.arguments : command.options).push_back(option);
  }
  const std::vector<const CLI::App*> below =
      app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  for (const CLI::App* sub : below) command.commands.push_back(sub->get_name());
  all.push_back(std::move(command));
  parents.push_back(&app);
  for (const CLI::App* sub : below) {
    Append(*sub, absl::StrCat(path, path.empty() ? "" : " ", sub->get_name()), parents, all);
  }
}

}  // namespace

std::vector<VisibleCommand> VisibleCommands(const CLI::App& root) {
  std::vector<VisibleCommand> all;
  Append(root, "", {}, all);
  return all;
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  // CLI::IsMember leaves its trace in the name of the type: "TEXT:{auto,always,never}".
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return absl::StrSplit(type.substr(begin + 1, end - begin - 1), ',');
}

}  // namespace lockstep
