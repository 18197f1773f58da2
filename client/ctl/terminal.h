// The terminal, and the person at it, if there are any.
#ifndef LOCKSTEP_CLIENT_CTL_TERMINAL_H_
#define LOCKSTEP_CLIENT_CTL_TERMINAL_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/ctl/style.h"

namespace lockstep {

// Whether somebody can answer questions on standard input.
bool HasTerminal();

// Whether standard output is a terminal that takes codes for colours and the cursor.
bool CanSteerTerminal();

// `when` is auto, always or never. auto: CanSteerTerminal(), and NO_COLOR is not set or empty.
Color ChooseColor(const std::string& when);

// Of the terminal at standard output; nothing if that is none, or does not tell.
std::optional<int> TerminalRows();

enum class Answer { kNo, kYes };
// Asks on standard error; an empty answer is `preset`, none (end of input) is no.
bool Ask(const std::string& question, Answer preset);

// Runs $VISUAL, else $EDITOR, else vi, on the file, through a shell, until it
// ends. Errors: FailedPrecondition: it could not be run or failed.
absl::Status RunEditor(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_TERMINAL_H_
