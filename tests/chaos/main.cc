// ./lockstep chaos: loses processes of a job again and again while it trains.
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "common/base/files.h"
#include "tests/chaos/chaos_run.h"
#include "tools/process/interrupt.h"

namespace lockstep {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kInterrupted = 130;

int Main(int argc, char** argv) {
  CLI::App app(
      "Trains on MNIST with one coordinator and four workers on this machine, over shared\n"
      "memory and then over Gloo, while workers and coordinator are killed, stopped and\n"
      "drained, one member at a time, and policies change. Behind each round the parameters of\n"
      "all workers must be bit for bit those of one process that took the steps alone.",
      "./lockstep chaos");
  ChaosOptions options;
  std::string json;
  app.add_option("--minutes", options.minutes,
                 "How long, half of it over each transport; rounds are finished")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of the faults' order, victims and times")
      ->capture_default_str();
  app.add_option("--out", options.out, "Folder for logs and reports")->capture_default_str();
  app.add_option("--json", json, "File for the counts");
  app.footer(
      "Exit codes: 0 every guarantee held; 1 one did not, or a failure; 2 usage; 130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  if (const absl::Status valid = options.Validate(); !valid.ok()) {
    std::cerr << "chaos: " << valid.message() << "\n";
    return kUsage;
  }

  ChaosTotals totals;
  absl::Status status = RunChaos(options, CatchInterrupts(), &totals);
  const std::string counts = ToJson(options, totals).dump(2) + "\n";
  std::cout << counts;
  if (!json.empty()) status.Update(WriteFile(json, counts));
  if (status.ok()) return 0;
  std::cerr << "chaos: seed " << options.seed << ": " << status.message() << "\n";
  if (!absl::IsCancelled(status)) return kFailed;
  std::cerr << "chaos: everything it started has ended\n";
  return kInterrupted;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
