// The worker program: one rank of a job. Exit codes: 0 done or drained, 1 failed, 2 wrong
// flags, 128 + n stopped by signal n.
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "common/base/log.h"
#include "http/http_server.h"
#include "worker/trainer/flags.h"
#include "worker/trainer/monitor.h"
#include "worker/trainer/routes.h"
#include "worker/trainer/stop_request.h"
#include "worker/trainer/stop_signals.h"
#include "worker/trainer/training.h"

int main(int argc, char** argv) {
  const auto parsed = lockstep::ParseFlags(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  const auto& flags = std::get<lockstep::WorkerFlags>(parsed);
  const std::string& name = flags.training.session.worker;
  lockstep::SetUpLog(name.empty() ? "worker" : name,
                     flags.verbose ? lockstep::LogLevel::kDebug : lockstep::LogLevel::kInfo,
                     flags.log_format);
  lockstep::SetLogFields({.job = flags.training.session.job});
  lockstep::TrainingMonitor monitor;
  std::unique_ptr<lockstep::HttpServer> http;
  if (!flags.http.listen.empty()) {
    absl::StatusOr<std::unique_ptr<lockstep::HttpServer>> started = lockstep::HttpServer::Start(
        flags.http, lockstep::WorkerRoutes(flags.training.session.job, name, &monitor));
    if (!started.ok()) {
      lockstep::LogError(started.status().ToString());
      return 1;
    }
    http = *std::move(started);
    lockstep::LogInfo("metrics and health on ", flags.http.tls.empty() ? "http://" : "https://",
                      http->address(), "/");
  }
  lockstep::StopRequest stop;
  const lockstep::StopSignals signals(&stop);
  const absl::Status status = lockstep::Train(flags.training, &stop, &monitor);
  if (stop.signal() != 0 && absl::IsCancelled(status)) {
    lockstep::LogInfo(status.message());
    return 128 + stop.signal();
  }
  if (absl::IsCancelled(status)) {  // drained: the others go on without it
    lockstep::LogInfo(status.message());
    return 0;
  }
  if (!status.ok()) {
    lockstep::LogError(status.ToString());
    return 1;
  }
  return 0;
}
