// Scheduler: virtual time, and who runs next. All that is simulated happens in events, one
// after the other; a process may besides have a thread of blocking code, which runs while an
// event waits for it, so that exactly one thread runs at any time.
//
// Nothing here reads a real clock or depends on addresses: the same seed gives the same run.
// Not thread-safe: used by the thread that calls Run(), and by the one process thread that runs.
#ifndef LOCKSTEP_TESTS_SIM_SCHEDULER_H_
#define LOCKSTEP_TESTS_SIM_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/prng.h"

namespace lockstep::sim {

class Scheduler;

// One start of a simulated program. It has a clock of its own, which may run fast or slow.
class Process final {
 public:
  Process(Scheduler* scheduler, std::string name, int drift_permille)
      : scheduler_(scheduler), name_(std::move(name)), rate_(1000 + drift_permille) {}

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  bool stopped() const { return stopped_; }
  MonoTime Now() const;
  // When its clock shows `local`.
  MonoTime GlobalTime(MonoTime local) const;
  // How long it takes to get a turn; more: a slow host.
  void set_latency(absl::Duration latency) { latency_ = latency; }

 private:
  friend class Scheduler;

  Scheduler* const scheduler_;
  const std::string name_;
  const std::int64_t rate_;  // of 1000
  absl::Duration latency_ = absl::Microseconds(200);
  bool alive_ = true;
  bool stopped_ = false;
  std::vector<std::function<void()>> held_;  // events while it is stopped

  std::thread thread_;
  std::binary_semaphore turn_{0};
  bool has_thread_ = false;
  bool waiting_ = false;
  bool wake_pending_ = false;
  std::int64_t waits_ = 0;
};

// The clock of a process.
class ProcessClock final : public Clock {
 public:
  explicit ProcessClock(const Process* process) : process_(process) {}
  MonoTime Now() const override { return process_->Now(); }
  absl::Time WallNow() const override {
    return absl::UnixEpoch() + absl::Nanoseconds(process_->Now().nanos());
  }

 private:
  const Process* const process_;
};

class Scheduler final {
 public:
  explicit Scheduler(std::uint64_t seed) : prng_(seed) {}
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  Prng& prng() { return prng_; }
  MonoTime now() const { return now_; }
  // Uniform, both ends included.
  absl::Duration Random(absl::Duration least, absl::Duration most);
  bool OneIn(int n) { return prng_.Below(static_cast<std::uint64_t>(n)) == 0; }

  // Lives as long as the scheduler.
  Process* NewProcess(std::string name, int drift_permille);

  // Does `what` at `when`, for the process `whose`: not at all once it is dead, later while
  // it is stopped. Null: nobody's. Events of the same time happen in the order they were made.
  void At(MonoTime when, Process* whose, std::function<void()> what);
  void After(absl::Duration delay, Process* whose, std::function<void()> what) {
    At(now_ + delay, whose, std::move(what));
  }

  // Gives `process` its thread of blocking code.
  void Start(Process* process, std::function<void()> code);
  // Of the thread that runs, which is that of `process`: waits until `condition` holds or its
  // clock shows `deadline`; returns whether it holds. Whoever changes what `condition` reads
  // calls Wake(). If the process dies meanwhile, the stack is unwound from here.
  bool Await(Process* process, MonoTime deadline, const std::function<bool()>& condition);
  // The same for code that must not be unwound, as destructors: dies later.
  bool AwaitToEnd(Process* process, MonoTime deadline, const std::function<bool()>& condition);
  void Sleep(Process* process, absl::Duration duration);
  void Wake(Process* process);

  // As kill -9: its thread is unwound, its events are dropped. Only from events.
  void Kill(Process* process);
  // As SIGSTOP and SIGCONT.
  void Stop(Process* process) { process->stopped_ = process->alive_; }
  void Continue(Process* process);

  // One event; false: there is none.
  bool Once();

 private:
  struct Event {
    MonoTime when;
    std::int64_t number;
    Process* whose;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };
  struct Killed {};  // unwinds the thread of a dead process

  bool Wait(Process* process, MonoTime deadline, const std::function<bool()>& condition,
            bool unwinds);
  void Resume(Process* process);

  Prng prng_;
  MonoTime now_;
  std::int64_t events_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::binary_semaphore turn_{0};
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_SCHEDULER_H_
