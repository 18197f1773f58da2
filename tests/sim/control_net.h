// ControlNet: the streams between workers and the coordinator.
//
// As over gRPC: messages of one stream come in order and once, as long as it lasts; when it
// breaks, what was under way may be lost from some message on, and each end hears of it in its own
// time, or never. Messages of an old stream may come after those of the next one.
// Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_CONTROL_NET_H_
#define LOCKSTEP_TESTS_SIM_CONTROL_NET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/protocol/messages.h"
#include "coordinator/core/state.h"
#include "tests/sim/scheduler.h"

namespace lockstep::sim {

// The coordinator as the network sees it.
class CoordinatorEnd {
 public:
  virtual ~CoordinatorEnd() = default;
  virtual Process* process() = 0;  // null: it is down
  virtual StreamId OpenStream(std::int64_t wire) = 0;
  virtual void OnMessage(StreamId stream, WorkerMessage message) = 0;
  virtual void OnBroke(StreamId stream) = 0;
};

// A worker's end of one stream.
struct WorkerEnd {
  Process* process = nullptr;
  std::function<void(CoordinatorMessage)> on_message;
  std::function<void(const absl::Status&)> on_end;
};

class ControlNet final {
 public:
  enum Direction { kUp = 0, kDown = 1 };  // to the coordinator; to the worker

  explicit ControlNet(Scheduler* scheduler) : scheduler_(*scheduler) {}
  void set_coordinator(CoordinatorEnd* coordinator) { coordinator_ = coordinator; }

  // Each returns at once. A wire is one stream; its number is never used again.
  std::int64_t Dial(WorkerEnd worker);
  void SendUp(std::int64_t wire, WorkerMessage message);
  void CloseUp(std::int64_t wire);
  void Drop(std::int64_t wire);  // the worker gives it up, or dies
  void SendDown(std::int64_t wire, CoordinatorMessage message);
  void EndDown(std::int64_t wire, const absl::Status& why);

  // Faults.
  void BreakAll(const Process* worker);
  void CoordinatorDied();
  // What is sent until then comes after it.
  void Block(const std::string& worker, Direction direction, MonoTime until);
  void Heal();

 private:
  struct Way {
    MonoTime last;                  // when the newest message comes
    std::int64_t sent = 0;
    std::int64_t came = 0;
    std::int64_t cut = INT64_MAX;   // messages from this one on are lost
  };
  struct Wire {
    WorkerEnd worker;
    Process* accepted_by = nullptr;
    StreamId stream;
    std::array<Way, 2> ways;
    bool broken = false;
    bool ended = false;  // by the coordinator
  };

  // When the next message of this way comes.
  MonoTime Arrival(Wire& wire, Direction direction);
  void Transmit(std::int64_t id, Direction direction, std::function<void(Wire&)> arrive);
  // At the coordinator, which has accepted or accepts the stream.
  void AtCoordinator(std::int64_t id, std::function<void(Wire&)> act);
  void Cut(Wire& wire);
  void TellWorker(std::int64_t id, absl::Duration delay, const absl::Status& why);
  void TellCoordinator(std::int64_t id);

  Scheduler& scheduler_;
  CoordinatorEnd* coordinator_ = nullptr;
  std::map<std::int64_t, Wire> wires_;
  std::int64_t next_wire_ = 1;
  std::map<std::pair<std::string, int>, MonoTime> blocked_;  // by worker and direction
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_CONTROL_NET_H_
