#include "client/ctl/terminal.h"

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

std::string Editor() {
  for (const char* name : {"VISUAL", "EDITOR"}) {
    const char* editor = std::getenv(name);
    if (editor != nullptr && *editor != '\0') return editor;
  }
  return "vi";
}

std::string QuotedForShell(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace

bool HasTerminal() { return isatty(STDIN_FILENO) == 1; }

bool CanSteerTerminal() {
  const char* const kind = std::getenv("TERM");
  const bool is_dumb = kind == nullptr || *kind == '\0' || absl::string_view(kind) == "dumb";
  return isatty(STDOUT_FILENO) == 1 && !is_dumb;
}

Color ChooseColor(const std::string& when) {
  if (when != "auto") return when == "always" ? Color::kOn : Color::kOff;
  const char* const unwanted = std::getenv("NO_COLOR");
  if (unwanted != nullptr && *unwanted != '\0') return Color::kOff;
  return CanSteerTerminal() ? Color::kOn : Color::kOff;
}

std::optional<int> TerminalRows() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
  return size.ws_row;
}

bool Ask(const std::string& question, Answer preset) {
  while (true) {
    std::fprintf(stderr, "%s %s ", question.c_str(), preset == Answer::kYes ? "[Y/n]" : "[y/N]");
    std::string line;
    if (!std::getline(std::cin, line)) {
      std::fprintf(stderr, "\n");
      return false;
    }
    line = absl::AsciiStrToLower(absl::StripAsciiWhitespace(line));
    if (line.empty()) return preset == Answer::kYes;
    if (line == "y" || line == "yes") return true;
    if (line == "n" || line == "no") return false;
  }
}

absl::Status RunEditor(const std::string& path) {
  const std::string editor = Editor();
  const int status = std::system(absl::StrCat(editor, " ", QuotedForShell(path)).c_str());
  if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the editor '", editor, "' ",
      status != -1 && WIFEXITED(status) ? absl::StrCat("ended with ", WEXITSTATUS(status))
                                        : "was stopped",
      "; set VISUAL or EDITOR to another one if need be"));
}

}  // namespace lockstep
