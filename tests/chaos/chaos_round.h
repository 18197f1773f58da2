// ChaosRound: one job of a coordinator and four workers, which is disturbed while it trains, and
// then looked at: all workers have the same parameters, and those that SerialTraining has.
//
// After each fault it waits until the job is whole again and has made a step, so that never
// more than one member is lost at a time. Used by one thread.
#ifndef LOCKSTEP_TESTS_CHAOS_CHAOS_ROUND_H_
#define LOCKSTEP_TESTS_CHAOS_CHAOS_ROUND_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "common/base/prng.h"
#include "lockstep/v1/job.pb.h"
#include "tests/chaos/epoch_history.h"
#include "tests/chaos/faults.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {

struct RoundOptions {
  std::string folder;  // exists; store, logs and reports go there
  std::string transport = "shm";
  std::int64_t steps = 100;  // of the job
  absl::Time last_fault = absl::InfiniteFuture();
  bool disturbed = true;
};

struct RoundResult {
  std::map<Fault, int> faults;
  int epochs = 0;
  // From a committed step to the next, with a new epoch between that the fault caused; 0: it caused
  // none.
  std::map<Fault, double> longest_stall_seconds;
  double steps_per_second = 0;
  int leaked_segments = 0;
};

class ChaosRound {
 public:
  // `prng`, `deck`, `interrupted` outlive this. `say` is called with what happens.
  ChaosRound(RoundOptions options, Prng* prng, FaultDeck* deck,
             const std::atomic<bool>* interrupted, std::function<void(const std::string&)> say);

  // Once. Everything it started has ended when it returns.
  // Errors: Cancelled: `interrupted` became true. Internal: a guarantee was broken. Others: it
  //   could not be run.
  absl::Status Run();

  // Of Run(); where that failed, what is known.
  const RoundResult& result() const { return result_; }

 private:
  absl::Status Start();
  absl::Status Disturb();
  absl::Status Cause(Fault fault);
  absl::Status ChangePolicy();
  absl::Status KillCoordinator();
  absl::Status StartCoordinator();
  // Waits until all members train and have made a step together, or all workers have ended.
  absl::Status AwaitWhole();
  absl::Status Check();

  absl::Status StartWorker(int index);
  // It waits for a job that is done.
  void DismissVictim();
  // The workers that have not ended. Errors: one that should not has.
  absl::StatusOr<std::vector<int>> StillRunning();
  absl::Status Sleep(absl::Duration duration) const;
  absl::Duration RandomTime(absl::Duration most);
  std::string NameOf(int worker) const { return LocalCluster::WorkerName(worker); }

  const RoundOptions options_;
  Prng& prng_;
  FaultDeck& deck_;
  const std::atomic<bool>& interrupted_;
  const std::function<void(const std::string&)> say_;
  std::vector<std::string> flags_;  // of each worker
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<Client> client_;
  v1::Job job_;  // as last seen
  bool ended_ = false;  // all workers
  int victim_ = -1;     // the worker of the last fault; -1: it touched none
  struct Disturbance {
    Fault fault;
    std::int64_t after;  // the epoch before it; those from there to the next fault's are its own
  };
  std::vector<Disturbance> disturbances_;
  int late_ = -1;       // the worker that found the others finished, if any
  RoundResult result_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_CHAOS_ROUND_H_
