// The coordinator program: flags, signals, exit codes.
//
// Exit code 0: stopped by a signal; 1: failure; 2: wrong usage.
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/mono_time.h"
#include "coordinator/server/server.h"
#include "coordinator/store/store.h"
#include "security/tls_flags.h"

namespace lockstep {
namespace {

constexpr int kExitStopped = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Flags {
  ServerOptions server;
  std::string store = "lockstep-coordinator.db";
  std::string port_file;
  std::string log_format = "text";
  bool verbose = false;
};

// Blocks the signals that end the program; a thread waits for them instead, so
// that no code runs inside a signal handler.
class SignalWait {
 public:
  SignalWait() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  ~SignalWait() {
    if (!thread_.joinable()) return;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }
  void OnSignal(CoordinatorServer* server) {
    thread_ = std::thread([this, server] {
      int signal = 0;
      sigwait(&signals_, &signal);
      server->RequestStop();
    });
  }

 private:
  sigset_t signals_;
  std::thread thread_;
};

int Fail(const absl::Status& why) {
  LogError(why.ToString());
  return kExitFailure;
}

int Serve(const Flags& flags) {
  SetUpLog("coordinator", flags.verbose ? LogLevel::kDebug : LogLevel::kInfo,
           flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  const RealClock clock;
  absl::StatusOr<std::unique_ptr<Store>> store = OpenSqliteStore(flags.store);
  if (!store.ok()) return Fail(store.status());

  std::unique_ptr<CoordinatorServer> server;
  SignalWait signals;
  {
    absl::StatusOr<std::unique_ptr<CoordinatorServer>> started =
        CoordinatorServer::Start(flags.server, *std::move(store), &clock);
    if (!started.ok()) return Fail(started.status());
    server = *std::move(started);
  }
  signals.OnSignal(server.get());
  if (!flags.port_file.empty()) {
    const absl::Status written = WriteFile(flags.port_file, absl::StrCat(server->address(), "\n"));
    if (!written.ok()) return Fail(written);
  }
  LogInfo("listening on ", server->address(), flags.server.tls.empty() ? "" : " with TLS",
          ", store ", flags.store);
  if (!server->http_address().empty()) {
    LogInfo("web page, metrics and health on ", flags.server.tls.empty() ? "http://" : "https://",
            server->http_address(), "/");
  }
  if (flags.server.tls.empty() && !server->is_loopback()) {
    LogWarning("whoever reaches ", server->address(), " can change all jobs: it is insecure, as "
               "asked for");
  }
  server->AwaitEnd();
  server->Stop();
  const absl::Status health = server->health();
  if (!health.ok()) return Fail(health);
  LogInfo("stopped");
  return kExitStopped;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "The Lockstep coordinator: decides who takes part in training jobs, who owns which shard, "
      "and what is synchronised when.");
  app.add_option("--listen", flags.server.listen, "HOST:PORT to serve on; port 0: any free one")
      ->capture_default_str();
  AddTlsFlags(&app, &flags.server.tls, "callers'");
  app.add_option("--tokens", flags.server.tokens,
                 "file that lists the hashes of bearer tokens and what their holders may do; takes "
                 "TLS, and callers with a token need no certificate; read again when it changes");
  app.add_flag("--insecure", flags.server.insecure,
               "serve other hosts without TLS: whoever reaches the port can change all jobs");
  app.add_option("--http", flags.server.http,
                 "HOST:PORT to serve a web page, the API as JSON, metrics and health on; secured as "
                 "the other port is");
  app.add_option("--store", flags.store,
                 "file that keeps jobs, epochs and histories; made if absent; ':memory:' keeps "
                 "nothing beyond this process")
      ->capture_default_str();
  app.add_option("--port-file", flags.port_file,
                 "write the address that is served to this file, once it is");
  app.add_option("--log-format", flags.log_format,
                 "text for people, or json: one object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_flag("--verbose", flags.verbose, "log more");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  return Serve(flags);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  // The library's own complaints would repeat what the log says better.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return lockstep::Main(argc, argv);
}
