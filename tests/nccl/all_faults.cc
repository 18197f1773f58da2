// all_faults: trains once for each fault of each call of NCCL and CUDA, and counts how it ended.
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/nccl/faulty_training.h"

namespace lockstep {
namespace {

// How runs with a fault in one function ended.
struct Tally {
  int calls = 0;
  int unharmed = 0;
  int refused = 0;
  int process_ended = 0;
  int not_reached = 0;

  int& operator[](Ending ending) {
    switch (ending) {
      case Ending::kUnharmed:
        return unharmed;
      case Ending::kRefused:
        return refused;
      case Ending::kProcessEnded:
        return process_ended;
      case Ending::kNotReached:
        return not_reached;
    }
    return not_reached;
  }
};

// Every `parts`-th fault, from number `part` on.
int Run(int ranks, int part, int parts) {
  const absl::StatusOr<HealthyRun> healthy = TrainUndisturbed(ranks);
  if (!healthy.ok()) {
    std::cerr << "all_faults: the run without a fault: " << healthy.status() << "\n";
    return 1;
  }
  const std::vector<FakeNccl::Injection> faults = FaultsOf(*healthy);
  std::map<std::string, Tally> tallies;
  for (const auto& [function, calls] : healthy->calls) {
    for (const int count : calls) tallies[function].calls += count;
  }
  int tried = 0;
  int wrong = 0;
  for (std::size_t i = part; i < faults.size(); i += parts) {
    if (tried++ % 500 == 0) std::cerr << "all_faults: " << i << " of " << faults.size() << "\n";
    const absl::StatusOr<Ending> ending = TrainWith(faults[i], ranks, *healthy);
    if (!ending.ok()) {
      std::cerr << "all_faults: " << ending.status() << "\n";
      ++wrong;
      continue;
    }
    ++tallies[faults[i].function][*ending];
  }
  std::cout << ranks << " ranks: function, its calls, runs that ended unharmed, refused, "
               "with the end of a process, without the call\n";
  for (const auto& [function, tally] : tallies) {
    std::cout << "  " << function << " " << tally.calls << " " << tally.unharmed << " "
              << tally.refused << " " << tally.process_ended << " "
              << tally.not_reached << "\n";
  }
  std::cout << tried << " faults, " << wrong << " of them ended as they must not\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  CLI::App app(
      "Trains over the NCCL transport on fake GPUs, once for each result code that each call of "
      "NCCL or CUDA may return and once for a call that never returns, and checks how it ends: with right values, or with an error on all "
      "ranks and right values in a new epoch.");
  int ranks = 2;
  int part = 0;
  int parts = 1;
  app.add_option("--ranks", ranks, "how many ranks train")->check(CLI::Range(1, 8))->capture_default_str();
  app.add_option("--parts", parts, "try every so-manyth fault, for processes side by side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--part", part, "which of the parts, from 0")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (part < 0 || part >= parts) {
    std::cerr << "all_faults: there is no part " << part << " of " << parts << "\n";
    return 2;
  }
  return lockstep::Run(ranks, part, parts);
}
