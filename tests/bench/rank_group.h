// RankGroup: the processes of one system, one for each rank, that wait for the
// bench to tell them what to run.
//
// Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_RANK_GROUP_H_
#define LOCKSTEP_TESTS_BENCH_RANK_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/bench/channel.h"
#include "tests/bench/report.h"
#include "tests/bench/shared_memory.h"
#include "tools/process/child_process.h"

namespace lockstep {

struct RankGroupOptions {
  std::string name;                    // for messages and logs
  std::vector<std::string> command;    // the program and its first arguments
  nlohmann::json config;               // rank, channel and memory are added
  int ranks = 0;
  std::int64_t room_bytes = 0;         // of the memory that they share
  std::string folder;                  // for logs
  absl::Duration start_timeout;
};

class RankGroup {
 public:
  // Errors: Unavailable, DeadlineExceeded: a rank, named, ended or is not ready;
  // with its last words. Those that ranks report.
  static absl::StatusOr<std::unique_ptr<RankGroup>> Start(const RankGroupOptions& options);

  // One repetition: the slowest rank's. Errors: as Start().
  absl::StatusOr<Measured> Run(const std::string& name);

  // Ends the ranks in order; the accounts of those that give one.
  absl::StatusOr<std::vector<nlohmann::json>> Stop();

 private:
  explicit RankGroup(const RankGroupOptions& options) : options_(options) {}

  absl::Status StartRank(int rank);
  absl::StatusOr<nlohmann::json> Receive(int rank, absl::Duration timeout);
  absl::Status Explain(int rank, const absl::Status& status) const;
  std::string LogPath(int rank) const;

  const RankGroupOptions options_;
  std::unique_ptr<SharedMemory> memory_;
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;  // killed first
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_RANK_GROUP_H_
