// The worker program: one rank of a job. Exit codes: 0 done, 1 failed, 2 wrong
// flags, 128 + n stopped by signal n.
#include <csignal>
#include <variant>

#include "common/base/log.h"
#include "worker/trainer/flags.h"
#include "worker/trainer/training.h"

namespace {

// The next signal of the kind ends the process at once, whatever it waits for.
void CatchOnce(int signal) {
  struct sigaction action = {};
  action.sa_handler = [](int caught) { lockstep::RequestStop(caught); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(signal, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = lockstep::ParseFlags(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  const auto& flags = std::get<lockstep::WorkerFlags>(parsed);
  const std::string& name = flags.training.session.worker;
  lockstep::SetUpLog(name.empty() ? "worker" : name, flags.verbose ? lockstep::LogLevel::kDebug
                                                                   : lockstep::LogLevel::kInfo);
  // Until then a signal ends the process as it is.
  const auto catch_signals = [] {
    CatchOnce(SIGINT);
    CatchOnce(SIGTERM);
  };
  const absl::Status status = lockstep::Train(flags.training, catch_signals);
  if (const int signal = lockstep::StopSignal(); signal != 0 && !status.ok()) {
    lockstep::LogInfo(status.message());
    return 128 + signal;
  }
  if (!status.ok()) {
    lockstep::LogError(status.ToString());
    return 1;
  }
  return 0;
}
