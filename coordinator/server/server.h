// CoordinatorServer: store, coordinator and gRPC services, put together.
#ifndef LOCKSTEP_COORDINATOR_SERVER_SERVER_H_
#define LOCKSTEP_COORDINATOR_SERVER_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "coordinator/rpc/attend_stream.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/store/store.h"
#include "security/tls_files.h"

namespace lockstep {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";  // HOST:PORT; port 0: any free one
  // Callers then show certificates, and may do what their roles allow (security/roles.h).
  TlsFiles tls;
  // Path of a list of bearer tokens (security/token_list.h); takes TLS. Callers with one need no
  // certificate. Empty: none are known.
  std::string tokens;
  // Without TLS whoever reaches the port may do everything: beyond loopback only if this is set.
  bool insecure = false;
  // HOST:PORT for the web page, the API as JSON, metrics and health (coordinator/web); empty: not
  // served. Secured as the port above is.
  std::string http;
  AttendLimits attend_limits;
  CallLimits call_limits;
};

// Thread-safe.
class CoordinatorServer {
 public:
  // Recovers from the store and serves. `clock` outlives it.
  // Errors: InvalidArgument: no HOST:PORT. FailedPrecondition: the port is
  //   taken, or the address is not of this host, or it is beyond loopback and neither
  //   secured nor meant to be insecure. InvalidArgument: tokens without TLS. Those of TokenFile, TlsFiles and of Coordinator::Start().
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(const ServerOptions& options,
                                                                  std::unique_ptr<Store> store,
                                                                  const Clock* clock);
  ~CoordinatorServer();  // Stop()

  // HOST:PORT with the port that was bound.
  const std::string& address() const;
  // HOST:PORT of what is served over HTTP; empty: nothing is.
  std::string http_address() const;
  // Whether only processes of this host can reach address().
  bool is_loopback() const;

  // Returns when the coordinator has stopped by itself or Stop() was called.
  void AwaitEnd();
  // Why the coordinator stopped by itself; OK while it runs.
  absl::Status health() const;
  // Ends streams with UNAVAILABLE and refuses calls, within about a second.
  void Stop();
  // Asks AwaitEnd() to return; the caller of it stops the server.
  void RequestStop();

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_SERVER_SERVER_H_
