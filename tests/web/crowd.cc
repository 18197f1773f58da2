// crowd: so many workers that only speak, of a job, until it is ended; their steps go on. For tests
// of what people see of large jobs.
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "tests/bench/coordinator/fleet.h"

namespace lockstep {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

int Main(int argc, char** argv) {
  FleetOptions options;
  CLI::App app("Workers that only speak, until they are ended.");
  app.add_option("--coordinator", options.address, "HOST:PORT")->required();
  app.add_option("--job", options.job, "the job that they attend")->required();
  app.add_option("--workers", options.workers, "how many");
  CLI11_PARSE(app, argc, argv);
  SetUpLog("crowd", LogLevel::kInfo);
  const auto fleet = Fleet::Create(options);
  if (!fleet.ok()) {
    LogError(fleet.status().ToString());
    return 1;
  }
  (*fleet)->Attend();
  absl::Status status = (*fleet)->AwaitStart(kPatience).status();
  while (status.ok()) {
    status = (*fleet)->Beat(2 * options.workers, absl::Seconds(10), kPatience).status();
  }
  LogError(status.ToString());
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
