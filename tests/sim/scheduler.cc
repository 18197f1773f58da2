#include "tests/sim/scheduler.h"

#include <utility>

#include "common/base/check.h"

namespace lockstep::sim {

MonoTime Process::Now() const {
  return MonoTime::FromNanos(scheduler_->now().nanos() * rate_ / 1000);
}

MonoTime Process::GlobalTime(MonoTime local) const {
  constexpr std::int64_t kFar = INT64_MAX / 4000;
  if (local.nanos() > kFar) return MonoTime::Infinite();
  return MonoTime::FromNanos((local.nanos() * 1000 + rate_ - 1) / rate_);
}

Scheduler::~Scheduler() {
  for (const std::unique_ptr<Process>& process : processes_) Kill(process.get());
}

absl::Duration Scheduler::Random(absl::Duration least, absl::Duration most) {
  return absl::Nanoseconds(
      prng_.Between(absl::ToInt64Nanoseconds(least), absl::ToInt64Nanoseconds(most)));
}

Process* Scheduler::NewProcess(std::string name, int drift_permille) {
  processes_.push_back(std::make_unique<Process>(this, std::move(name), drift_permille));
  return processes_.back().get();
}

void Scheduler::At(MonoTime when, Process* whose, std::function<void()> what) {
  queue_.push({std::max(when, now_), events_++, whose, std::move(what)});
}

void Scheduler::Start(Process* process, std::function<void()> code) {
  process->has_thread_ = true;
  process->thread_ = std::thread([this, process, code = std::move(code)] {
    process->turn_.acquire();
    try {
      if (process->alive_) code();
    } catch (const Killed&) {
    }
    process->has_thread_ = false;
    turn_.release();
  });
  At(now_, process, [this, process] { Resume(process); });
}

void Scheduler::Resume(Process* process) {
  process->waiting_ = false;
  process->turn_.release();
  turn_.acquire();
}

bool Scheduler::Await(Process* process, MonoTime deadline,
                      const std::function<bool()>& condition) {
  return Wait(process, deadline, condition, /*unwinds=*/true);
}

bool Scheduler::AwaitToEnd(Process* process, MonoTime deadline,
                           const std::function<bool()>& condition) {
  return Wait(process, deadline, condition, /*unwinds=*/false);
}

void Scheduler::Sleep(Process* process, absl::Duration duration) {
  Await(process, process->Now() + duration, [] { return false; });
}

bool Scheduler::Wait(Process* process, MonoTime deadline, const std::function<bool()>& condition,
                     bool unwinds) {
  while (process->alive_) {
    if (condition()) return true;
    if (process->Now() >= deadline) return false;
    process->waiting_ = true;
    const std::int64_t wait = ++process->waits_;
    const MonoTime end = process->GlobalTime(deadline);
    if (end != MonoTime::Infinite()) {
      At(end, process, [this, process, wait] {
        if (process->waiting_ && process->waits_ == wait) Resume(process);
      });
    }
    turn_.release();
    process->turn_.acquire();
  }
  if (unwinds) throw Killed();
  return false;
}

void Scheduler::Wake(Process* process) {
  if (!process->waiting_ || process->wake_pending_) return;
  process->wake_pending_ = true;
  After(Random(absl::ZeroDuration(), process->latency_), process, [this, process] {
    process->wake_pending_ = false;
    if (process->waiting_) Resume(process);
  });
}

void Scheduler::Kill(Process* process) {
  process->alive_ = false;
  process->stopped_ = false;
  process->held_.clear();
  if (process->has_thread_) Resume(process);
  if (process->thread_.joinable()) process->thread_.join();
}

void Scheduler::Continue(Process* process) {
  process->stopped_ = false;
  std::vector<std::function<void()>> held = std::exchange(process->held_, {});
  for (std::size_t i = 0; i < held.size() && process->alive_; ++i) {
    if (process->stopped_) {
      process->held_.push_back(std::move(held[i]));
    } else {
      held[i]();
    }
  }
}

bool Scheduler::Once() {
  if (queue_.empty()) return false;
  // The top is const only because its order must not change.
  Event event = std::move(const_cast<Event&>(queue_.top()));
  queue_.pop();
  now_ = event.when;
  if (event.whose != nullptr && !event.whose->alive_) return true;
  if (event.whose != nullptr && event.whose->stopped_) {
    event.whose->held_.push_back(std::move(event.what));
  } else {
    event.what();
  }
  return true;
}

}  // namespace lockstep::sim
