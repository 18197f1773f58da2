#include "worker/trainer/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "absl/strings/string_view.h"
#include "common/base/log.h"

namespace lockstep {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

int NextSignal() {
  const sigset_t signals = Signals();
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

// 0: none came in time.
int NextSignalWithin(absl::Duration timeout) {
  const sigset_t signals = Signals();
  const timespec relative = absl::ToTimespec(timeout);
  int signal;
  do {
    signal = sigtimedwait(&signals, nullptr, &relative);
  } while (signal < 0 && errno == EINTR);
  return signal < 0 ? 0 : signal;
}

[[noreturn]] void Exit(int signal, absl::string_view when) {
  LogInfo("stopped by signal ", signal, " ", when);
  _exit(128 + signal);
}

}  // namespace

StopSignals::StopSignals(StopRequest* request, absl::Duration grace)
    : request_(request), grace_(grace) {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

StopSignals::~StopSignals() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes the thread, and no other
  thread_.join();
}

void StopSignals::Watch() {
  const int first = NextSignal();
  if (done_) return;
  request_->Set(first);
  int second = 0;
  if (request_->can_interrupt()) second = NextSignalWithin(grace_);
  if (done_) return;
  if (second == 0 && !request_->Interrupt()) Exit(first, "before training began");
  if (second == 0) second = NextSignal();
  if (done_) return;
  Exit(second, "at once, as it was the second one");
}

}  // namespace lockstep
