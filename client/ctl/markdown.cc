#include "client/ctl/markdown.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/command_tree.h"

namespace lockstep {
namespace {

// Left out of lists: it is everywhere.
bool IsHelp(const CLI::App& app, const CLI::Option* option) {
  return app.get_help_ptr() == option;
}

// No placeholder is taken for HTML, no star for emphasis.
std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"<", "\\<"}, {"*", "\\*"}, {"_", "\\_"}});
}

std::string TypeOf(const CLI::Option& option) {
  const std::vector<std::string> choices = ChoicesOf(option);
  return choices.empty() ? option.get_type_name() : absl::StrJoin(choices, "|");
}

std::string Excluded(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const CLI::Option* other : option.get_excludes()) names.push_back(other->get_name());
  std::sort(names.begin(), names.end());  // they are held by address
  return absl::StrJoin(names, "`, `");
}

// "- `--step INT`: of the checkpoint".
std::string Item(const CLI::Option& option) {
  std::string name = option.get_positional() ? option.get_name(/*positional=*/true)
                                             : absl::StrJoin(NamesOf(option), "`, `");
  if (!option.get_positional() && TakesValue(option)) absl::StrAppend(&name, " ", TypeOf(option));
  std::string item = absl::StrCat("- `", name, "`: ", Escaped(option.get_description()));
  if (option.get_positional() && !ChoicesOf(option).empty()) {
    absl::StrAppend(&item, ": `", TypeOf(option), "`");
  }
  std::vector<std::string> notes;
  if (option.get_required()) notes.push_back("required");
  if (TakesValue(option) && !option.get_default_str().empty()) {
    notes.push_back(absl::StrCat("default `", option.get_default_str(), "`"));
  }
  if (!option.get_envname().empty()) {
    notes.push_back(absl::StrCat("environment `", option.get_envname(), "`"));
  }
  if (const std::string excluded = Excluded(option); !excluded.empty()) {
    notes.push_back(absl::StrCat("not with `", excluded, "`"));
  }
  if (!notes.empty()) absl::StrAppend(&item, " (", absl::StrJoin(notes, "; "), ")");
  return item + "\n";
}

// With the program's.
std::string FullName(const VisibleCommand& command) {
  std::string name;
  for (const CLI::App* parent : command.parents) absl::StrAppend(&name, parent->get_name(), " ");
  return absl::StrCat(name, command.app->get_name());
}

std::string Usage(const VisibleCommand& command) {
  std::string usage = FullName(command);
  for (const CLI::Option* argument : command.arguments) {
    const std::string name = argument->get_name(/*positional=*/true);
    absl::StrAppend(&usage, " ", argument->get_required() ? name : absl::StrCat("[", name, "]"));
  }
  if (!command.commands.empty()) absl::StrAppend(&usage, " COMMAND");
  return absl::StrCat(usage, " [OPTIONS]");
}

std::string Section(const VisibleCommand& command) {
  const CLI::App& app = *command.app;
  const std::size_t level = std::min<std::size_t>(command.parents.size() + 1, 3);
  std::string text = absl::StrCat(std::string(level, '#'), " ", FullName(command), "\n\n",
                                  Escaped(app.get_description()), "\n\n```\n", Usage(command),
                                  "\n```\n");
  if (!command.arguments.empty()) absl::StrAppend(&text, "\n");
  for (const CLI::Option* argument : command.arguments) absl::StrAppend(&text, Item(*argument));
  for (const std::string& group : app.get_groups()) {
    std::string items;
    for (const CLI::Option* option : command.options) {
      if (option->get_group() == group && !IsHelp(app, option)) {
        absl::StrAppend(&items, Item(*option));
      }
    }
    if (!items.empty()) absl::StrAppend(&text, "\n", group, ":\n\n", items);
  }
  if (!app.get_footer().empty()) absl::StrAppend(&text, "\n```\n", app.get_footer(), "\n```\n");
  return text;
}

}  // namespace

std::string MarkdownOf(const CLI::App& root) {
  std::vector<std::string> sections;
  for (const VisibleCommand& command : VisibleCommands(root)) {
    sections.push_back(Section(command));
  }
  return absl::StrCat(
      "<!-- Made by `bazel-bin/client/ctl/lockstepctl docs > docs/cli.md`: change the program, not "
      "this file. -->\n\n",
      absl::StrJoin(sections, "\n"));
}

}  // namespace lockstep
