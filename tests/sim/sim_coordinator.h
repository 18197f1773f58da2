// SimCoordinator: the coordinator's process: CoordinatorFsm over a disk and streams that are
// simulated. It does what coordinator/runtime does: in turns; nothing of a turn leaves before its
// records are durable; after a crash a new process recovers from what is.
// Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_SIM_COORDINATOR_H_
#define LOCKSTEP_TESTS_SIM_SIM_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/events.h"
#include "coordinator/store/memory_store.h"
#include "tests/sim/control_net.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace lockstep::sim {

class SimCoordinator final : public CoordinatorEnd {
 public:
  struct Hooks {
    // After the events of a turn.
    std::function<void(const ClusterState&)> on_state;
    // A test-only change to what it hears; null: none.
    std::function<void(const ClusterState&, WorkerMessage&)> on_message;
  };
  SimCoordinator(Scheduler* scheduler, Trace* trace, ControlNet* net, Hooks hooks);

  void Start(int drift_permille);
  void Crash();
  void Stop();
  void Continue();
  bool is_up() const { return process_ != nullptr; }
  // Null while it is down.
  const ClusterState* state() const { return fsm_.has_value() ? &fsm_->state() : nullptr; }

  // `done` is called once the answer has left; never, if it crashes before.
  void Submit(Request request, std::function<void(const absl::StatusOr<Reply>&)> done);

  Process* process() override { return process_; }
  StreamId OpenStream(std::int64_t wire) override;
  void OnMessage(StreamId stream, WorkerMessage message) override;
  void OnBroke(StreamId stream) override;

 private:
  struct Item {
    Event event;
    std::function<void(const absl::StatusOr<Reply>&)> done;
  };

  void Post(Item item);
  void Turn();
  void Collect(Effects effects);
  void Persist();
  void Dispatch();
  void WakeInTime();

  Scheduler& scheduler_;
  Trace& trace_;
  ControlNet& net_;
  const Hooks hooks_;
  MemoryStore store_;

  Process* process_ = nullptr;
  std::optional<CoordinatorFsm> fsm_;
  std::vector<Item> inbox_;
  bool busy_ = false;  // a turn is under way or about to be
  std::vector<Effects> turn_;
  std::vector<Record> unsynced_;  // written, and not durable yet
  std::optional<MonoTime> wake_at_;
  std::map<StreamId, std::int64_t> wires_;
  std::map<RequestId, std::function<void(const absl::StatusOr<Reply>&)>> pending_;
  StreamId last_stream_;
  RequestId last_request_;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_SIM_COORDINATOR_H_
