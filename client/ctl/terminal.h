// The person at the terminal, if there is one.
#ifndef LOCKSTEP_CLIENT_CTL_TERMINAL_H_
#define LOCKSTEP_CLIENT_CTL_TERMINAL_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Whether somebody can answer questions on standard input.
bool HasTerminal();

enum class Answer { kNo, kYes };
// Asks on standard error; an empty answer is `preset`, none (end of input) is no.
bool Ask(const std::string& question, Answer preset);

// Runs $VISUAL, else $EDITOR, else vi, on the file, through a shell, until it
// ends. Errors: FailedPrecondition: it could not be run or failed.
absl::Status RunEditor(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_TERMINAL_H_
