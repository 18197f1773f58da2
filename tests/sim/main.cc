// sim: runs the simulation for many seeds; see ./lockstep sim --help.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "tests/sim/simulation.h"

namespace lockstep::sim {
namespace {

constexpr absl::string_view kUsage = R"(usage: ./lockstep sim [--seeds N] [--seed S] [--json] [--trace] [--without RULE] [--jobs J]

Runs a whole cluster on simulated time, networks and disk, with failures drawn from a seed.
  --seeds N       seeds S to S + N - 1; 200
  --seed S        the first one; 1; alone: this one only
  --trace         print all that happened, of each seed
  --json          print one object with what was run and found
  --without RULE  leave out commit-point, buddy, fencing or agreement, to see it found
  --jobs J        seeds at once; as many as there are CPUs
)";

struct Arguments {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 200;
  bool json = false;
  bool trace = false;
  int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Without without = Without::kNothing;
  std::string rule;
};

// What a failed run shows without --trace.
constexpr std::size_t kLastLines = 60;

std::optional<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  bool has_seed = false, has_seeds = false;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view name = argv[i];
    const absl::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--help") {
      std::fputs(std::string(kUsage).c_str(), stdout);
      std::exit(0);
    }
    if (name == "--json") {
      arguments.json = true;
    } else if (name == "--trace") {
      arguments.trace = true;
    } else if (name == "--seed" && absl::SimpleAtoi(value, &arguments.seed)) {
      has_seed = true;
      ++i;
    } else if (name == "--seeds" && absl::SimpleAtoi(value, &arguments.seeds)) {
      has_seeds = true;
      ++i;
    } else if (name == "--jobs" && absl::SimpleAtoi(value, &arguments.jobs) &&
               arguments.jobs > 0) {
      ++i;
    } else if (name == "--without" && WithoutOf(value).has_value()) {
      arguments.without = *WithoutOf(value);
      arguments.rule = std::string(value);
      ++i;
    } else {
      return std::nullopt;
    }
  }
  if (has_seed && !has_seeds) arguments.seeds = 1;
  if (arguments.trace) arguments.jobs = 1;
  return arguments;
}

struct Totals {
  std::int64_t steps = 0, epochs = 0, faults = 0, restores = 0;
  double virtual_seconds = 0;
  std::vector<std::uint64_t> failed;
  std::vector<std::string> violations;
  std::uint64_t digest = 0;
};

void Print(std::uint64_t seed, const Arguments& arguments, const RunResult& result) {
  if (!result.violation.empty()) {
    absl::FPrintF(stderr, "seed %d: %s\n  %s\n", seed, result.violation, result.cluster);
  }
  if (arguments.trace || result.violation.empty()) return;
  const std::size_t first =
      result.trace.size() < kLastLines ? 0 : result.trace.size() - kLastLines;
  for (std::size_t i = first; i < result.trace.size(); ++i) {
    absl::FPrintF(stderr, "  %s\n", result.trace[i]);
  }
  if (first > 0) {
    absl::FPrintF(stderr, "all of it: ./lockstep sim --seed %d%s --trace\n", seed,
                  arguments.rule.empty() ? "" : absl::StrCat(" --without ", arguments.rule));
  }
}

Totals RunAll(const Arguments& arguments) {
  Totals totals;
  Mutex mu;
  std::atomic<std::uint64_t> next = 0;
  const auto work = [&] {
    while (true) {
      const std::uint64_t number = next.fetch_add(1);
      if (number >= arguments.seeds) return;
      const std::uint64_t seed = arguments.seed + number;
      const RunResult result = RunSimulation({.seed = seed,
                                              .without = arguments.without,
                                              .live_trace = arguments.trace});
      MutexLock lock(&mu);
      Print(seed, arguments, result);
      totals.steps += result.steps;
      totals.epochs += result.epochs;
      totals.faults += result.faults;
      totals.restores += result.restores;
      totals.virtual_seconds += result.virtual_seconds;
      totals.digest += result.digest;  // in whatever order
      if (result.violation.empty()) continue;
      totals.failed.push_back(seed);
      totals.violations.push_back(absl::StrCat("seed ", seed, ": ", result.violation));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < arguments.jobs; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(totals.failed);
  return totals;
}

int Run(const Arguments& arguments) {
  SetUpLog("sim", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  const Totals totals = RunAll(arguments);
  if (arguments.json) {
    std::string failed;
    for (const std::uint64_t seed : totals.failed) {
      absl::StrAppend(&failed, failed.empty() ? "" : ", ", seed);
    }
    absl::PrintF(
        "{\"first_seed\": %d, \"seeds\": %d, \"without\": \"%s\", \"failed\": [%s], "
        "\"steps\": %d, \"epochs\": %d, \"faults\": %d, \"restores\": %d, "
        "\"virtual_seconds\": %.1f, \"digest\": \"%016x\"}\n",
        arguments.seed, arguments.seeds, arguments.rule, failed, totals.steps, totals.epochs,
        totals.faults, totals.restores, totals.virtual_seconds, totals.digest);
  } else {
    absl::PrintF(
        "%d seeds, %d failed: %d steps, %d epochs, %d faults, %d times begun anew, %.0f virtual "
        "seconds; digest %016x\n",
        arguments.seeds, totals.failed.size(), totals.steps, totals.epochs, totals.faults,
        totals.restores, totals.virtual_seconds, totals.digest);
  }
  return totals.failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::sim

int main(int argc, char** argv) {
  const auto arguments = lockstep::sim::Parse(argc, argv);
  if (!arguments.has_value()) {
    std::fputs(std::string(lockstep::sim::kUsage).c_str(), stderr);
    return 2;
  }
  return lockstep::sim::Run(*arguments);
}
