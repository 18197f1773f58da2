// CoordinatorFsm: the rules of the cluster as a deterministic state machine.
//
// Events in, effects out. It never reads a clock, waits, stores or sends; the
// runtime does. The same state and events give the same effects. Used by one
// thread.
#ifndef LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_
#define LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_

#include <span>

#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"

namespace lockstep {

class CoordinatorFsm {
 public:
  // Starts from what is stored: the fold of all records. Members of a running
  // epoch are suspects whose lease begins `now`; a proposed epoch is over.
  // Errors: DataLoss names the first record that contradicts those before it.
  static absl::StatusOr<CoordinatorFsm> Recover(std::span<const Record> records, MonoTime now);

  // To be persisted by the caller before any event: a new start on this store.
  // Also carries what recovery itself decided.
  Effects Begin();

  // Applies one event that happened at `now`; times never go back.
  Effects Step(MonoTime now, const Event& event);

  const ClusterState& state() const { return state_; }

 private:
  CoordinatorFsm() = default;

  ClusterState state_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_CORE_COORDINATOR_FSM_H_
