// Who belongs to the next epoch, or why there is none yet: free functions of
// values. Pure.
#ifndef LOCKSTEP_COORDINATOR_CORE_FORMING_H_
#define LOCKSTEP_COORDINATOR_CORE_FORMING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "coordinator/core/model_comparison.h"
#include "coordinator/core/state.h"

namespace lockstep {

struct EpochRules {
  int min_workers = 1;
  int max_workers = 1;
  absl::Duration join_window;
};

enum class Hold {
  kNone,            // propose `members`
  kTooFew,          // fewer than min_workers attend
  kJoinWindowOpen,  // enough attend; more may come until `window_end`
};

struct EpochDecision {
  Hold hold = Hold::kNone;
  std::vector<std::string> members;    // by rank
  std::optional<MonoTime> window_end;  // set while the join window is open

  bool operator==(const EpochDecision&) const = default;
};

// Who may belong to the next epoch.
struct Candidates {
  // Those that attend: survivors of the last epoch, by name, then others, by name. A
  // survivor that is silent is none until it is heard again.
  std::vector<std::string> names;
  // The survivors are enough, and nobody else who has the job's state may come back
  // soon: no reason to wait.
  bool need_not_wait = false;
  // Holders of the job's state that are neither here nor given up, if without them some of
  // it may be lost: worth a wait until they are one or the other.
  std::vector<std::string> awaited;
};
Candidates FindCandidates(const JobState& job, MonoTime now);

// `attending`: names, in the order in which they have a right to a place.
// `window_end`: of the decision before; the window opens when min_workers is reached
// and closes early at max_workers. Of more than max_workers the others wait.
EpochDecision DecideEpoch(const std::vector<std::string>& attending, const EpochRules& rules,
                          std::optional<MonoTime> window_end, MonoTime now);

// The first respect in which workers that are to train together differ: model,
// as far as it matters, optimizer or transport, with both names and views.
// Nothing if they agree.
std::optional<std::string> FindDisagreement(const std::vector<const WorkerState*>& workers,
                                            ModelComparison& models);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_FORMING_H_
