// ./lockstep bench: measures the data plane with one process per rank.
#include <fstream>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "tests/bench/bench_options.h"
#include "tests/bench/bench_run.h"
#include "tests/bench/cost_report.h"
#include "tests/bench/report.h"
#include "tools/process/interrupt.h"

namespace lockstep {
namespace {

int Main(const std::vector<std::string>& arguments) {
  const auto parsed = ParseBenchOptions(arguments);
  if (const auto* exit = std::get_if<EarlyExit>(&parsed)) {
    (exit->code == 0 ? std::cout : std::cerr) << exit->text;
    return exit->code;
  }
  const auto& options = std::get<BenchOptions>(parsed);

  const absl::StatusOr<nlohmann::json> report = RunBenches(options, CatchInterrupts());
  if (absl::IsCancelled(report.status())) {
    std::cerr << "bench: interrupted; everything it started has ended\n";
    return 130;
  }
  if (!report.ok()) {
    std::cerr << "bench: " << report.status() << "\n";
    return 1;
  }
  std::cout << (options.is_cost() ? CostText(*report) : ReportText(*report));
  if (options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << report->dump(2) << "\n";
  file.close();
  if (file) return 0;
  std::cerr << "bench: cannot write " << options.json << "\n";
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(std::vector<std::string>(argv + 1, argv + argc));
}
