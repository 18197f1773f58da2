// Golden scripts: text files that say what is done, and what comes of it. Lines up to "----" are
// commands; those after it, up to an empty line, are all that they bring about. "#" begins a
// comment among commands.
#ifndef LOCKSTEP_TESTS_GOLDEN_GOLDEN_SCRIPTS_H_
#define LOCKSTEP_TESTS_GOLDEN_GOLDEN_SCRIPTS_H_

#include <functional>
#include <string>

namespace lockstep {

// Carries out one command; what it brought about, in whole lines.
using RunCommand = std::function<std::string(const std::string& command)>;

// Expects of each folder/*.txt, a path in the workspace, that its commands bring about what it
// says, each file with a `begin()` of its own. Under `REWRITE=1 bazel run` files are changed to
// what comes of their commands instead.
void ExpectScriptsHold(const std::string& folder, const std::function<RunCommand()>& begin);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_GOLDEN_GOLDEN_SCRIPTS_H_
