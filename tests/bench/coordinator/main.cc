// ./lockstep bench coordinator: measures how many workers one coordinator serves.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/bench/coordinator/capacity_options.h"
#include "tests/bench/coordinator/capacity_report.h"
#include "tests/bench/coordinator/capacity_run.h"
#include "tests/bench/coordinator/coordinator_process.h"
#include "tests/bench/scratch_folder.h"
#include "tools/process/interrupt.h"

namespace lockstep {
namespace {

// What a process opens beside the connections of workers.
constexpr std::uint64_t kOtherFiles = 200;

// The folder of one run; a temporary one goes with it.
class Folder {
 public:
  explicit Folder(const std::string& given) : path_(given) {
    if (given.empty()) path_ = scratch_.emplace().path();
  }

  // Of one case, made new.
  absl::StatusOr<std::string> For(int workers, const std::string& tls) const {
    std::error_code error;
    const std::string made = absl::StrCat(path_, "/", workers, "-tls-", tls);
    if (path_.empty() || !std::filesystem::create_directory(made, error)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot make the folder '", made, "', or it exists; give another with --store"));
    }
    return made;
  }

 private:
  std::string path_;
  std::optional<ScratchFolder> scratch_;
};

absl::StatusOr<std::vector<CapacityResult>> RunAll(const CapacityOptions& options,
                                                   const std::atomic<bool>& interrupted) {
  const int most = std::ranges::max(options.workers);
  const int connections =
      (most + options.workers_per_connection - 1) / options.workers_per_connection;
  LOCKSTEP_RETURN_IF_ERROR(AllowOpenFiles(static_cast<std::uint64_t>(connections) + kOtherFiles));
  LOCKSTEP_ASSIGN_OR_RETURN(const Cores cores, FindCores());
  if (cores.workers.front() == cores.coordinator) {
    std::cerr << "there is one core only: the simulated workers take their part of it, too\n";
  }
  LOCKSTEP_RETURN_IF_ERROR(PinThisThread(cores.workers));
  const Folder folder(options.store);
  std::vector<CapacityResult> results;
  for (const int workers : options.workers) {
    for (const std::string& tls : options.tls) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string directory, folder.For(workers, tls));
      LOCKSTEP_ASSIGN_OR_RETURN(
          const CapacityResult result,
          RunCapacityCase({.workers = workers,
                           .tls = tls == "on",
                           .workers_per_connection = options.workers_per_connection,
                           .seconds = options.seconds,
                           .directory = directory,
                           .cores = cores},
                          interrupted));
      results.push_back(result);
      std::cerr << CapacityText({result});
    }
  }
  return results;
}

int Main(const std::vector<std::string>& arguments) {
  const auto parsed = ParseCapacityOptions(arguments);
  if (const auto* exit = std::get_if<EarlyExit>(&parsed)) {
    (exit->code == 0 ? std::cout : std::cerr) << exit->text;
    return exit->code;
  }
  const auto& options = std::get<CapacityOptions>(parsed);
  const absl::StatusOr<std::vector<CapacityResult>> results = RunAll(options, CatchInterrupts());
  if (absl::IsCancelled(results.status())) {
    std::cerr << "bench coordinator: interrupted; everything it started has ended\n";
    return 130;
  }
  if (!results.ok()) {
    std::cerr << "bench coordinator: " << results.status() << "\n";
    return 1;
  }
  std::cout << CapacityText(*results);
  if (options.json.empty()) return 0;
  const absl::Status written = WriteFile(options.json, CapacityJson(*results).dump(2) + "\n");
  if (written.ok()) return 0;
  std::cerr << "bench coordinator: " << written << "\n";
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // The library's own complaints would repeat what is said better.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return lockstep::Main(std::vector<std::string>(argv + 1, argv + argc));
}
