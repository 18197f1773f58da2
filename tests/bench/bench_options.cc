#include "tests/bench/bench_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"

namespace lockstep {
namespace {

const std::vector<std::string> kBenches = {"step", "buffers", "broadcast", "agree", "train"};
constexpr char kAll[] = "all";
constexpr char kCost[] = "cost";
constexpr int kCostRepeat = 7;

constexpr char kAbout[] =
    "Measures the data plane with one process per rank, as ratios within one run:\n"
    "  step       one AdamW step over 21 M parameters, beside a bandwidth probe\n"
    "  buffers    one sync of a ResNet-50's 159 buffers, hot and cold\n"
    "  broadcast  64 MiB from rank 0\n"
    "  agree      the agreement of a step alone\n"
    "  train      the whole training loop of a BatchNorm ResNet on MNIST's images\n"
    "  all        the five of them, one after the other\n"
    "  cost       by itself: how a step's cost grows, 1 to 100 M parameters, 1 to 8 ranks\n"
    "Others: ./lockstep bench micro measures single operations, ranks as threads;\n"
    "./lockstep bench coordinator how many workers a coordinator serves; ./lockstep bench charts\n"
    "draws what --json wrote.";
constexpr char kFooter[] =
    "A repetition counts as its slowest rank. The table goes to standard output, progress to\n"
    "standard error. docs/performance.md says what is measured and how.\n"
    "Exit codes: 0 measured; 1 a failure; 2 usage; 130 interrupted.";

}  // namespace

BenchSizes SizesOf(const BenchOptions& options) {
  if (!options.tiny) return {};
  return {.matrices = 5,
          .side = 32,
          .broadcast_elements = 4096,
          .agreements = 10,
          .cold_bytes = 4096,
          .train_batch = 8,
          .train_steps = 2};
}

std::variant<BenchOptions, EarlyExit> ParseBenchOptions(std::vector<std::string> arguments) {
  BenchOptions options;
  CLI::App app(kAbout, "./lockstep bench");
  app.footer(kFooter);
  std::vector<std::string> known = kBenches;
  known.push_back(kAll);
  known.push_back(kCost);
  app.add_option("BENCH", options.benches, "What to measure")
      ->required()
      ->check(CLI::IsMember(known));
  const CLI::Option* ranks = app.add_option("--ranks", options.ranks, "Number of processes")
                                 ->check(CLI::Range(2, 16))
                                 ->capture_default_str();
  app.add_option("--transport", options.transport, "Data plane of Lockstep")
      ->check(CLI::IsMember({"shm", "gloo"}))
      ->capture_default_str();
  app.add_option("--replicas", options.replicas,
                 "Ranks that keep each shard's optimizer state: 2 makes steps that survive a loss")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app.add_flag("--peers", options.peers,
               "Also torch DDP, ZeroRedundancyOptimizer and fairscale over Gloo, alternating; installs "
               "them where they are missing (5.6 GB)");
  app.add_option("--json", options.json, "Write the report there too");
  const CLI::Option* repeat =
      app.add_option("--repeat", options.repeat, "Counted repetitions of each case; of cost: 7")
          ->check(CLI::Range(1, 100000))
          ->capture_default_str();
  app.add_flag("--tiny", options.tiny, "Sizes that show that it runs and say nothing about speed");
  if (const std::optional<EarlyExit> exit = ParseArguments(app, std::move(arguments))) return *exit;
  if (std::ranges::find(options.benches, kCost) != options.benches.end()) {
    if (options.benches.size() > 1 || options.peers || ranks->count() > 0) {
      return EarlyExit{.code = 2,
                       .text = "cost goes without other benches, --ranks and --peers: it takes its own "
                               "numbers of ranks, and has no peers\n"};
    }
    if (repeat->count() == 0) options.repeat = kCostRepeat;
    return options;
  }
  const bool all = std::ranges::find(options.benches, kAll) != options.benches.end();
  std::vector<std::string> wanted;
  for (const std::string& bench : kBenches) {
    if (all || std::ranges::find(options.benches, bench) != options.benches.end()) {
      wanted.push_back(bench);
    }
  }
  options.benches = std::move(wanted);
  return options;
}

}  // namespace lockstep
