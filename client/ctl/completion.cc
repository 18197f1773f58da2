#include "client/ctl/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/command_tree.h"

namespace lockstep {
namespace {

// In the language that both shells speak. `_lockstepctl_node COMMAND` comes from the tree.
constexpr char kFind[] = R"sh(
# What is known of the value of the kind $1 goes to `candidates` or `files`.
_lockstepctl_values() {
  case "$1" in
    JOB) candidates=$("$program" "${connection[@]}" complete jobs 2>/dev/null) ;;
    WORKER) candidates=$("$program" "${connection[@]}" complete workers "$first" 2>/dev/null) ;;
    CONTEXT) candidates=$("$program" complete contexts 2>/dev/null) ;;
    FILE) files=yes ;;
    *,*) candidates=${1//,/ } ;;
  esac
}

# The kind of the option $2's value among $1, "--color=auto,always,never, --out=FILE "; empty: it
# takes none.
_lockstepctl_kind() {
  kind=
  case " $1" in
    *" $2="*)
      kind=" $1"
      kind=${kind#*" $2="}
      kind=${kind%% *}
      ;;
  esac
}

# Of the words of a command line, the last of which is to be completed.
_lockstepctl_find() {
  if [ -n "${ZSH_VERSION-}" ]; then emulate -L sh; fi
  local commands options valued arguments connecting command= first= kind= word program=$1
  local -a connection
  connection=()
  candidates= files=
  shift
  _lockstepctl_node ''
  connecting=$valued
  while [ $# -gt 1 ]; do
    word=$1
    shift
    case "$word" in
      -*=*)
        _lockstepctl_kind "$connecting" "${word%%=*}"
        if [ -n "$kind" ]; then connection+=("$word"); fi
        ;;
      -*)
        _lockstepctl_kind "$valued" "$word"
        if [ -z "$kind" ]; then continue; fi
        if [ $# -eq 1 ]; then
          _lockstepctl_values "$kind"
          return
        fi
        _lockstepctl_kind "$connecting" "$word"
        if [ -n "$kind" ]; then connection+=("$word" "$1"); fi
        shift
        ;;
      *)
        case " $commands " in
          *" $word "*)
            command="${command:+$command }$word"
            _lockstepctl_node "$command"
            ;;
          *)
            if [ -z "$first" ]; then first=$word; fi
            arguments=${arguments#* }
            ;;
        esac
        ;;
    esac
  done
  case "$1" in
    -*=*)
      _lockstepctl_kind "$valued" "${1%%=*}"
      _lockstepctl_values "$kind"
      ;;
    -*) candidates=$options ;;
    *)
      if [ -n "$commands" ]; then
        candidates=$commands
      else
        _lockstepctl_values "${arguments%% *}"
      fi
      ;;
  esac
}
)sh";

constexpr char kBash[] = R"sh(
_lockstepctl() {
  local candidates files i word glued=
  local -a whole
  whole=("${COMP_WORDS[0]}")
  # Readline breaks words at '=' and ':'; an address has one.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case "$word" in
      [=:]*) whole[${#whole[@]}-1]+=$word glued=yes ;;
      *)
        if [ -n "$glued" ]; then
          whole[${#whole[@]}-1]+=$word
        else
          whole+=("$word")
        fi
        glued=
        ;;
    esac
  done
  _lockstepctl_find "${whole[@]}"
  COMPREPLY=()
  if [ -n "$files" ]; then
    compopt -o default
    return
  fi
  word=${whole[${#whole[@]}-1]}
  case "$word" in
    -*=*) word=${word#*=} ;;
  esac
  COMPREPLY=($(compgen -W "$candidates" -- "$word"))
}

complete -F _lockstepctl lockstepctl
)sh";

constexpr char kZsh[] = R"sh(
_lockstepctl() {
  local candidates files
  _lockstepctl_find "${words[@]:0:$CURRENT}"
  compset -P '-*='
  if [[ -n $files ]]; then
    _files
  else
    compadd -- ${=candidates}
  fi
}

compdef _lockstepctl lockstepctl
)sh";

// "-" where nothing is known of it.
std::string KindOf(const CLI::Option& option) {
  const std::vector<std::string> choices = ChoicesOf(option);
  // A single one has the comma, too, by which choices are known.
  if (!choices.empty()) return absl::StrCat(absl::StrJoin(choices, ","), ",");
  const std::string type = option.get_type_name();
  return type.empty() ? "-" : type;
}

std::string Node(const VisibleCommand& command, const std::vector<VisibleCommand>& all) {
  std::vector<std::string> options;
  std::string valued;
  const auto add = [&](const VisibleCommand& one) {
    for (const CLI::Option* option : one.options) {
      for (const std::string& name : NamesOf(*option)) {
        options.push_back(name);
        if (TakesValue(*option)) absl::StrAppend(&valued, name, "=", KindOf(*option), " ");
      }
    }
  };
  add(command);
  // Options of what is above may stand here, too; the command's own come first.
  for (const VisibleCommand& other : all) {
    for (const CLI::App* parent : command.parents) {
      if (other.app == parent) add(other);
    }
  }
  std::string arguments;
  for (const CLI::Option* argument : command.arguments) {
    absl::StrAppend(&arguments, KindOf(*argument), " ");
  }
  std::vector<std::string> unique;
  for (const std::string& option : options) {
    bool is_new = true;
    for (const std::string& known : unique) is_new = is_new && known != option;
    if (is_new) unique.push_back(option);
  }
  return absl::StrCat("    '", command.path, "')\n      commands='",
                      absl::StrJoin(command.commands, " "), "'\n      options='",
                      absl::StrJoin(unique, " "), "'\n      valued='", valued,
                      "'\n      arguments='", arguments, "'\n      ;;\n");
}

std::string Nodes(const CLI::App& root) {
  const std::vector<VisibleCommand> all = VisibleCommands(root);
  std::string text =
      "# What can stand behind the command $1: commands, options, options with a value and its\n"
      "# kind, and the kinds of arguments.\n"
      "_lockstepctl_node() {\n  case \"$1\" in\n";
  for (const VisibleCommand& command : all) absl::StrAppend(&text, Node(command, all));
  return absl::StrCat(text, "  esac\n}\n");
}

}  // namespace

std::string BashCompletion(const CLI::App& root) {
  return absl::StrCat(
      "# bash completion for lockstepctl: source <(lockstepctl completion bash)\n\n", Nodes(root),
      kFind, kBash);
}

std::string ZshCompletion(const CLI::App& root) {
  return absl::StrCat(
      "#compdef lockstepctl\n# zsh completion for lockstepctl: source <(lockstepctl completion "
      "zsh)\n\n",
      Nodes(root), kFind, kZsh);
}

}  // namespace lockstep
