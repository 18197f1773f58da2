// EarlyExit: how a benchmark's command line is read, and that the program ends with it.
#ifndef LOCKSTEP_TESTS_BENCH_EARLY_EXIT_H_
#define LOCKSTEP_TESTS_BENCH_EARLY_EXIT_H_

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

// That the program is to end with `code` now, after `text` was printed.
struct EarlyExit {
  int code = 0;  // 0: help was asked for; 2: usage
  std::string text;
};

// `arguments` without the program's name. Nothing: they are what `app` takes.
std::optional<EarlyExit> ParseArguments(CLI::App& app, std::vector<std::string> arguments);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_EARLY_EXIT_H_
