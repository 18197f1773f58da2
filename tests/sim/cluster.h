// Cluster: a coordinator and the workers of one job, as they run; and what can be done to them.
// Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_CLUSTER_H_
#define LOCKSTEP_TESTS_SIM_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/state.h"
#include "tests/sim/checker.h"
#include "tests/sim/control_net.h"
#include "tests/sim/fabric.h"
#include "tests/sim/narrator.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/simulation.h"
#include "tests/sim/trace.h"
#include "tests/sim/training.h"
#include "worker/engine/engine.h"

namespace lockstep::sim {

struct ClusterOptions {
  int workers = 3;
  JobSpec job;
  FabricOptions fabric;
  Training training;
  int most_drift_permille = 0;
  absl::Duration compute;  // of one step, on average
  Without without = Without::kNothing;

  std::string ToString() const;
};

class Cluster final {
 public:
  Cluster(Scheduler* scheduler, Trace* trace, const ClusterOptions& options);
  ~Cluster();

  const ClusterOptions& options() const { return options_; }
  int workers() const { return static_cast<int>(slots_.size()); }
  Checker& checker() { return checker_; }
  SimCoordinator& coordinator() { return coordinator_; }
  ControlNet& control_net() { return net_; }
  Fabric& fabric() { return fabric_; }

  bool is_up(int worker) const { return slots_[worker].process != nullptr; }
  bool is_stopped(int worker) const { return is_up(worker) && slots_[worker].process->stopped(); }
  // Whether all members of the newest epoch train in it, and run.
  bool IsWhole() const;
  // Whether nobody but `worker` is lost, or about to be, of those who hold the job's state: the
  // members of the last epoch that all its members have begun.
  bool OthersHold(int worker) const;

  void StartCoordinator();
  // As an operator does: again, until it is answered.
  void CreateJob();
  void StartWorker(int worker);
  // As kill -9. It is started again `after` that, unless there is no time given.
  void CrashWorker(int worker, std::optional<absl::Duration> after);
  // Of a worker that is down: none.
  std::optional<std::int64_t> StepOf(int worker) const;
  void StopWorker(int worker);
  void ContinueWorker(int worker);
  // It leaves behind its next step, and comes again `after` that.
  void DismissWorker(int worker, absl::Duration after);
  void SlowDown(int worker, absl::Duration latency);
  void BreakStream(int worker);
  void BlockControl(int worker, ControlNet::Direction direction, absl::Duration duration);
  void BlockData(int from, int to, absl::Duration duration);
  // All run, and everything passes again.
  void Heal();
  // What happens to it when it reaches `phase` of a step the next time; for good, if there is no
  // duration.
  enum class Fate { kCrash, kStop };
  void Plan(int worker, StepPhase phase, Fate fate, std::optional<absl::Duration> duration);
  // As a client asks. Nobody is asked while the coordinator is down.
  void Drain(int worker);
  void RevisePolicy(const SyncPolicy& policy);
  // From now on.
  void Tell(const Telling& what) { tells_ = what; }

  static std::string NameOf(int worker) { return absl::StrCat("w", worker); }

 private:
  struct PlannedFate {
    StepPhase phase;
    Fate fate;
    std::optional<absl::Duration> duration;
  };
  struct Slot {
    Process* process = nullptr;  // null: down
    Incarnation incarnation;
    SimLink* link = nullptr;
    std::int64_t step = 0;
    std::vector<Shard> copies;  // as of the newest proposal to it
    absl::Duration latency = absl::Microseconds(200);
    std::optional<PlannedFate> planned;
    std::optional<absl::Duration> dismissed;
    std::int64_t starts = 0;  // and ends
    MonoTime away_until;      // the coordinator may have given it up by then
  };

  // What the thread of a worker runs.
  void Train(int worker, Process* process, SimLink* link);
  absl::Status TakeStep(int worker, Process* process, VectorModel& model, Engine& engine);
  void OnPhase(int worker, Process* process, StepPhase phase, std::int64_t step);
  void Joined(int worker, VectorModel& model, const Engine& engine);
  Checker::Place PlaceOf(VectorModel& model, const Engine& engine) const;
  void End(int worker, const absl::Status& why, absl::Duration away);
  void Down(int worker, std::optional<absl::Duration> after);
  bool Holds(const Life& life) const;
  bool IsOut(const Life& life) const;
  void KeepAway(int worker, absl::Duration duration);
  Life LifeOf(int worker) const { return {NameOf(worker), slots_[worker].incarnation}; }
  int Drift();

  Scheduler& scheduler_;
  Trace& trace_;
  const ClusterOptions options_;
  ControlNet net_;
  Fabric fabric_;
  Checker checker_;
  SimCoordinator coordinator_;
  std::vector<Slot> slots_;
  bool job_created_ = false;
  Telling tells_;
  Epoch last_begun_;  // of which the trace tells how it began
  Incarnation last_incarnation_;
  std::vector<std::unique_ptr<SimLink>> links_;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_CLUSTER_H_
