#include "tests/bench/coordinator/capacity_options.h"

#include <optional>
#include <utility>

#include "CLI/CLI.hpp"

namespace lockstep {
namespace {

constexpr int kMostWorkers = 10'000;

constexpr char kAbout[] =
    "Measures how many workers one coordinator serves. The coordinator is the real program, with\n"
    "its store on disk, and runs on one core; simulated workers attend over gRPC from the others.";
constexpr char kFooter[] =
    "Each case, a number of workers with TLS or without, starts from an empty store:\n"
    "  joins      all workers attend at once; until the last was welcomed\n"
    "  epoch      the same, until the last got Start\n"
    "  heartbeats 5,000 a second in all, or 180 of each worker if that is less; some carry an\n"
    "             epoch that never was, which the coordinator answers: p99 is from handing such\n"
    "             a heartbeat to gRPC until its answer. The last one of each worker is of these,\n"
    "             and the rate counts until all are answered: nothing is left in a queue\n"
    "  policy     from the call that changes the policy until the last worker received it\n"
    "  memory     what the coordinator's resident memory grew by, for each worker\n"
    "  restart    from kill -9 until another process answers on the same store and port\n"
    "Beside some times stands how much of its core the coordinator used meanwhile. The table\n"
    "goes to standard output, progress to standard error.\n"
    "Exit codes: 0 measured; 1 a failure; 2 usage; 130 interrupted.";

}  // namespace

std::variant<CapacityOptions, EarlyExit> ParseCapacityOptions(
    std::vector<std::string> arguments) {
  CapacityOptions options;
  CLI::App app(kAbout, "./lockstep bench coordinator");
  app.footer(kFooter);
  app.add_option("--workers", options.workers, "Numbers of workers, each a case")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostWorkers))
      ->capture_default_str();
  app.add_option("--tls", options.tls, "off, on: cases without and with TLS")
      ->delimiter(',')
      ->check(CLI::IsMember({"off", "on"}))
      ->capture_default_str();
  app.add_option("--workers-per-connection", options.workers_per_connection,
                 "Workers that share a connection; 1 as real ones do, which takes a file each")
      ->check(CLI::Range(1, kMostWorkers))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "How long heartbeats are sent")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app.add_option("--store", options.store,
                 "Folder that takes stores, logs and certificates, and keeps them; default: a "
                 "temporary one, which goes")
      ->check(CLI::ExistingDirectory);
  app.add_option("--json", options.json, "Write the report there too");
  if (const std::optional<EarlyExit> exit = ParseArguments(app, std::move(arguments))) return *exit;
  return options;
}

}  // namespace lockstep
