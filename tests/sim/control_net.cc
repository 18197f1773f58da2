#include "tests/sim/control_net.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::sim {
namespace {

// Beyond the longest a peer may be gone without a word: then the lease decides.
constexpr absl::Duration kNever = absl::Hours(24);

}  // namespace

std::int64_t ControlNet::Dial(WorkerEnd worker) {
  const std::int64_t id = next_wire_++;
  wires_[id].worker = std::move(worker);
  return id;
}

MonoTime ControlNet::Arrival(Wire& wire, Direction direction) {
  Way& way = wire.ways[direction];
  const absl::Duration delay = scheduler_.OneIn(20)
                                   ? scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(300))
                                   : scheduler_.Random(absl::Microseconds(100), absl::Milliseconds(3));
  way.last = std::max(way.last, scheduler_.now() + delay);
  const auto blocked = blocked_.find({wire.worker.process->name(), direction});
  if (blocked != blocked_.end()) way.last = std::max(way.last, blocked->second);
  return way.last;
}

void ControlNet::Transmit(std::int64_t id, Direction direction,
                          std::function<void(Wire&)> arrive) {
  const auto it = wires_.find(id);
  if (it == wires_.end() || it->second.broken) return;
  const std::int64_t number = it->second.ways[direction].sent++;
  scheduler_.At(Arrival(it->second, direction), nullptr,
                [this, id, direction, number, arrive = std::move(arrive)] {
                  Wire& wire = wires_.at(id);
                  Way& way = wire.ways[direction];
                  if (number >= way.cut) return;
                  way.came = number + 1;
                  arrive(wire);
                });
}

void ControlNet::AtCoordinator(std::int64_t id, std::function<void(Wire&)> act) {
  Wire& wire = wires_.at(id);
  Process* const process = coordinator_->process();
  if (process == nullptr || (wire.accepted_by != nullptr && wire.accepted_by != process)) {
    if (std::exchange(wire.broken, true)) return;
    TellWorker(id, scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(20)),
               absl::UnavailableError("connection refused"));
    return;
  }
  wire.accepted_by = process;
  scheduler_.At(scheduler_.now(), process, [this, id, act = std::move(act)] {
    Wire& wire = wires_.at(id);
    if (!wire.stream.valid()) wire.stream = coordinator_->OpenStream(id);
    act(wire);
  });
}

void ControlNet::SendUp(std::int64_t id, WorkerMessage message) {
  Transmit(id, kUp, [this, id, message = std::move(message)](Wire&) {
    AtCoordinator(id, [this, message](Wire& wire) { coordinator_->OnMessage(wire.stream, message); });
  });
}

void ControlNet::CloseUp(std::int64_t id) {
  Transmit(id, kUp, [this, id](Wire&) {
    AtCoordinator(id, [this, id](Wire& wire) {
      coordinator_->OnBroke(wire.stream);
      EndDown(id, absl::CancelledError("the worker closed its stream"));
    });
  });
}

void ControlNet::SendDown(std::int64_t id, CoordinatorMessage message) {
  if (wires_.at(id).ended) return;
  Transmit(id, kDown, [this, message = std::move(message)](Wire& wire) {
    scheduler_.At(scheduler_.now(), wire.worker.process,
                  [on_message = wire.worker.on_message, message] { on_message(message); });
  });
}

void ControlNet::EndDown(std::int64_t id, const absl::Status& why) {
  if (std::exchange(wires_.at(id).ended, true)) return;
  Transmit(id, kDown, [this, why](Wire& wire) {
    scheduler_.At(scheduler_.now(), wire.worker.process,
                  [on_end = wire.worker.on_end, why] { on_end(why); });
  });
}

void ControlNet::Cut(Wire& wire) {
  wire.broken = true;
  for (Way& way : wire.ways) {
    way.cut = std::min(way.cut, way.came + static_cast<std::int64_t>(scheduler_.prng().Below(
                                               static_cast<std::uint64_t>(way.sent - way.came + 1))));
  }
}

void ControlNet::TellWorker(std::int64_t id, absl::Duration delay, const absl::Status& why) {
  Wire& wire = wires_.at(id);
  scheduler_.After(delay, wire.worker.process, [on_end = wire.worker.on_end, why] { on_end(why); });
}

void ControlNet::TellCoordinator(std::int64_t id) {
  Wire& wire = wires_.at(id);
  if (wire.accepted_by == nullptr) return;
  const absl::Duration delay =
      scheduler_.OneIn(4) ? kNever : scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(500));
  scheduler_.After(delay, wire.accepted_by, [this, id] {
    const Wire& wire = wires_.at(id);
    if (wire.stream.valid()) coordinator_->OnBroke(wire.stream);
  });
}

void ControlNet::Drop(std::int64_t id) {
  const auto it = wires_.find(id);
  if (it == wires_.end() || it->second.broken) return;
  Cut(it->second);
  TellCoordinator(id);
}

void ControlNet::BreakAll(const Process* worker) {
  for (auto& [id, wire] : wires_) {
    if (wire.worker.process != worker || wire.broken) continue;
    Cut(wire);
    TellCoordinator(id);
    TellWorker(id, scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(500)),
               absl::UnavailableError("connection lost"));
  }
}

void ControlNet::CoordinatorDied() {
  for (auto& [id, wire] : wires_) {
    if (wire.broken || wire.accepted_by == nullptr) continue;
    Cut(wire);
    TellWorker(id,
               scheduler_.OneIn(5) ? scheduler_.Random(absl::Seconds(1), absl::Seconds(5))
                                   : scheduler_.Random(absl::Milliseconds(1), absl::Milliseconds(100)),
               absl::UnavailableError("connection reset by the coordinator's host"));
  }
}

void ControlNet::Block(const std::string& worker, Direction direction, MonoTime until) {
  blocked_[{worker, direction}] = until;
}

void ControlNet::Heal() { blocked_.clear(); }

}  // namespace lockstep::sim
