#include "tests/sim/sim_coordinator.h"

#include <utility>
#include <variant>

#include "common/base/check.h"

namespace lockstep::sim {

SimCoordinator::SimCoordinator(Scheduler* scheduler, Trace* trace, ControlNet* net, Hooks hooks)
    : scheduler_(*scheduler), trace_(*trace), net_(*net), hooks_(std::move(hooks)) {
  net_.set_coordinator(this);
}

void SimCoordinator::Start(int drift_permille) {
  process_ = scheduler_.NewProcess("coordinator", drift_permille);
  const absl::StatusOr<std::vector<Record>> records = store_.Load();
  LOCKSTEP_CHECK(records.ok());
  absl::StatusOr<CoordinatorFsm> fsm = CoordinatorFsm::Recover(*records, process_->Now());
  LOCKSTEP_CHECK(fsm.ok());
  fsm_ = *std::move(fsm);
  busy_ = true;
  Collect(fsm_->Begin());
  trace_.Say("coordinator starts as generation ", fsm_->state().generation.value(), " with ",
             records->size(), " records");
  Persist();
}

void SimCoordinator::Crash() {
  // The store appends all of a turn or nothing, whatever became of its bytes.
  const bool kept = !unsynced_.empty() && scheduler_.OneIn(2);
  trace_.Say("coordinator crashes; ", unsynced_.size(), " records under way are ",
             kept ? "kept" : "lost");
  if (kept) LOCKSTEP_CHECK(store_.Append(unsynced_).ok());
  unsynced_.clear();
  scheduler_.Kill(process_);
  process_ = nullptr;
  fsm_.reset();
  inbox_.clear();
  turn_.clear();
  wires_.clear();
  pending_.clear();
  wake_at_.reset();
  net_.CoordinatorDied();
}

void SimCoordinator::Stop() {
  trace_.Say("coordinator is stopped");
  scheduler_.Stop(process_);
}

void SimCoordinator::Continue() {
  if (process_ == nullptr || !process_->stopped()) return;
  trace_.Say("coordinator is continued");
  scheduler_.Continue(process_);
}

void SimCoordinator::Submit(Request request,
                            std::function<void(const absl::StatusOr<Reply>&)> done) {
  scheduler_.After(scheduler_.Random(absl::Microseconds(100), absl::Milliseconds(20)), process_,
                   [this, request = std::move(request), done = std::move(done)] {
                     last_request_ = last_request_.next();
                     Post({RequestReceived{last_request_,
                                           absl::UnixEpoch() + absl::Nanoseconds(
                                                                   scheduler_.now().nanos()),
                                           request},
                           done});
                   });
}

StreamId SimCoordinator::OpenStream(std::int64_t wire) {
  last_stream_ = last_stream_.next();
  wires_[last_stream_] = wire;
  return last_stream_;
}

void SimCoordinator::OnMessage(StreamId stream, WorkerMessage message) {
  Post({MessageReceived{stream, std::move(message)}, nullptr});
}

void SimCoordinator::OnBroke(StreamId stream) {
  if (wires_.erase(stream) > 0) Post({StreamBroke{stream}, nullptr});
}

void SimCoordinator::Post(Item item) {
  inbox_.push_back(std::move(item));
  if (std::exchange(busy_, true)) return;
  scheduler_.After(scheduler_.Random(absl::ZeroDuration(), absl::Microseconds(500)), process_,
                   [this] { Turn(); });
}

void SimCoordinator::Turn() {
  std::vector<Event> events;
  for (Item& item : std::exchange(inbox_, {})) {
    if (auto* said = std::get_if<MessageReceived>(&item.event)) {
      if (!wires_.contains(said->stream)) continue;
      if (hooks_.on_message) hooks_.on_message(fsm_->state(), said->message);
    }
    if (auto* asked = std::get_if<RequestReceived>(&item.event)) {
      pending_[asked->id] = std::move(item.done);
    }
    events.push_back(std::move(item.event));
  }
  if (!events.empty()) Collect(fsm_->Step(process_->Now(), events));
  if (wake_at_.has_value() && *wake_at_ <= process_->Now()) {
    Collect(fsm_->Step(process_->Now(), Tick{}));
  }
  Persist();
}

void SimCoordinator::Collect(Effects effects) {
  wake_at_ = effects.wake_at;
  unsynced_.insert(unsynced_.end(), effects.persist.begin(), effects.persist.end());
  turn_.push_back(std::move(effects));
  hooks_.on_state(fsm_->state());
}

void SimCoordinator::Persist() {
  if (unsynced_.empty()) return Dispatch();
  const absl::Duration sync = scheduler_.OneIn(20)
                                  ? scheduler_.Random(absl::Milliseconds(20), absl::Seconds(1))
                                  : scheduler_.Random(absl::Microseconds(200), absl::Milliseconds(8));
  scheduler_.After(sync, process_, [this] {
    LOCKSTEP_CHECK(store_.Append(std::exchange(unsynced_, {})).ok());
    Dispatch();
  });
}

void SimCoordinator::Dispatch() {
  for (Effects& effects : std::exchange(turn_, {})) {
    for (const Outgoing& out : effects.send) {
      const auto it = wires_.find(out.stream);
      if (it != wires_.end()) net_.SendDown(it->second, *out.message);
    }
    for (const EndStream& end : effects.end) {
      const auto it = wires_.find(end.stream);
      if (it == wires_.end()) continue;
      net_.EndDown(it->second, end.why);
      wires_.erase(it);
    }
    for (const Answer& answer : effects.answers) {
      auto pending = pending_.extract(answer.id);
      if (!pending.empty()) pending.mapped()(answer.reply);
    }
  }
  busy_ = false;
  if (!inbox_.empty()) {
    busy_ = true;
    scheduler_.After(absl::ZeroDuration(), process_, [this] { Turn(); });
    return;
  }
  WakeInTime();
}

void SimCoordinator::WakeInTime() {
  if (!wake_at_.has_value()) return;
  const MonoTime at = *wake_at_;
  scheduler_.At(process_->GlobalTime(at), process_, [this, at] {
    if (wake_at_ != at || std::exchange(busy_, true)) return;
    Turn();
  });
}

}  // namespace lockstep::sim
