// A command line's reference in Markdown (docs/cli.md). Pure; thread-safe.
#ifndef LOCKSTEP_CLIENT_CTL_MARKDOWN_H_
#define LOCKSTEP_CLIENT_CTL_MARKDOWN_H_

#include <string>

#include "CLI/CLI.hpp"

namespace lockstep {

// Every visible command with its arguments and options. The same for the same program,
// whatever its environment.
std::string MarkdownOf(const CLI::App& root);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CTL_MARKDOWN_H_
