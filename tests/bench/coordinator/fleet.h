// Fleet: workers of one job that only speak: they attend over gRPC as real ones do, but train
// nothing and have no data plane. Any number of them take a few threads.
//
//   open: Hello -> Welcome -> Proposal -> Endpoint (rank 0) -> Ready -> Start, then Heartbeats,
//         an Applied for each entry
//
// What the coordinator says is checked, and whatever is wrong fails the wait that is under way. A
// Proposal must be the same for all, to the byte or in what it says; the first is checked against
// the plan that the model gives. Used by one thread.
#ifndef LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_H_
#define LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/manifest/manifest.h"
#include "security/tls_files.h"

namespace lockstep {

struct FleetOptions {
  std::string address;  // HOST:PORT of the coordinator
  TlsFiles tls;
  std::string job;
  int workers = 1;
  int workers_per_connection = 100;
};

// The model that they all say they train.
Manifest FleetModel();

class Fleet {
 public:
  // Opens nothing yet. Errors: those of TlsFiles.
  static absl::StatusOr<std::unique_ptr<Fleet>> Create(const FleetOptions& options);
  // Cuts off all streams.
  ~Fleet();

  // Opens all streams at once, over new connections. From now on each worker beats once a
  // second. Again after LoseAll(), with the epoch that they are in.
  void Attend();

  // When the last of them got there. Errors: DeadlineExceeded names the first that did not; what
  // went wrong with any of them.
  absl::StatusOr<absl::Time> AwaitWelcome(absl::Duration timeout);
  absl::StatusOr<absl::Time> AwaitStart(absl::Duration timeout);
  absl::StatusOr<absl::Time> AwaitEntry(std::int64_t log_number, absl::Duration timeout);

  struct Beats {
    double per_second = 0;             // that the coordinator took, until the last was answered
    std::vector<double> latencies_ms;  // of those that it answers
  };
  // So many heartbeats a second of all workers together, for `duration`, and their answers.
  absl::StatusOr<Beats> Beat(double per_second, absl::Duration duration, absl::Duration timeout);

  // To be told before the coordinator is killed. AwaitLost(): all streams have ended.
  void ExpectLoss();
  absl::Status AwaitLost(absl::Duration timeout);

 private:
  class Impl;
  explicit Fleet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_COORDINATOR_FLEET_H_
