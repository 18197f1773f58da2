#include "tests/bench/early_exit.h"

#include <algorithm>
#include <sstream>

#include "CLI/CLI.hpp"

namespace lockstep {

std::optional<EarlyExit> ParseArguments(CLI::App& app, std::vector<std::string> arguments) {
  try {
    // CLI11 takes them from the back.
    std::ranges::reverse(arguments);
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    const int code = app.exit(e, out, out) == 0 ? 0 : 2;
    return EarlyExit{.code = code, .text = out.str()};
  }
  return std::nullopt;
}

}  // namespace lockstep
