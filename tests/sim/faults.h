// Faults: what goes wrong in a run, drawn from its seed; until all is healed.
// Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_FAULTS_H_
#define LOCKSTEP_TESTS_SIM_FAULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/cluster.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace lockstep::sim {

class Faults final {
 public:
  Faults(Scheduler* scheduler, Trace* trace, Cluster* cluster);

  void Begin();
  bool healed() const { return healed_; }
  std::int64_t done() const { return done_; }
  // Which kinds there are.
  std::string ToString() const;

 private:
  enum class Kind {
    kCrashWorker,
    kCrashAtPhase,
    kCrashCoordinator,
    kBreakStream,
    kStopWorker,
    kStopAtPhase,
    kStopCoordinator,
    kBlockControl,
    kBlockData,
    kSlowWorker,
    kRevisePolicy,
    kSyncNow,
    kDismiss,
    kDrain,
  };
  static const char* NameOf(Kind kind);

  void Next();
  void Do(Kind kind);
  void RevisePolicy();
  void Heal();
  int AnyWorker();
  absl::Duration Pause();  // short, or longer than a lease
  // Whether `worker` may be lost: in a careful run only if no other is.
  bool MayLose(int worker) const;

  Scheduler& scheduler_;
  Trace& trace_;
  Cluster& cluster_;
  std::vector<Kind> kinds_;
  bool careful_ = false;  // at most one member is lost at a time
  absl::Duration longest_gap_;
  MonoTime end_;
  bool healed_ = false;
  std::int64_t done_ = 0;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_FAULTS_H_
