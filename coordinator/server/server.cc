#include "coordinator/server/server.h"

#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "coordinator/rpc/job_service.h"
#include "coordinator/rpc/membership_service.h"
#include "coordinator/rpc/sync_policy_service.h"
#include "coordinator/runtime/coordinator.h"
#include "coordinator/store/metered_store.h"
#include "coordinator/web/routes.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "http/http_server.h"
#include "security/authorization.h"
#include "security/token_file.h"
#include "security/tls.h"

namespace lockstep {
namespace {

// A manifest of a large model is one message.
constexpr int kMaxMessageBytes = 64 << 20;
// A peer that is gone without a word is noticed after about the sum of these.
constexpr int kKeepaliveTimeMs = 10'000;
// A ping waits behind what its connection has still to carry: proposals to thousands of workers
// take seconds. Members that are gone are noticed by their leases sooner.
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMinPingIntervalMs = 2'000;
// Of one connection.
constexpr int kMaxConcurrentStreams = 10'000;
constexpr int kHandshakeTimeoutMs = 10'000;
// Calls that are still open when the server stops are cut off after this.
constexpr std::chrono::milliseconds kStopGrace(500);

}  // namespace

class CoordinatorServer::Impl {
 public:
  Impl(std::unique_ptr<Coordinator> coordinator, const ServerOptions& options, const Clock* clock)
      : coordinator_(std::move(coordinator)),
        gate_(options.call_limits, !options.tls.empty(), clock),
        jobs_(coordinator_.get(), &gate_),
        policies_(coordinator_.get(), &gate_),
        membership_(coordinator_.get(), &gate_, options.attend_limits) {}

  ~Impl() { Stop(); }

  absl::Status Listen(const std::string& listen,
                      std::shared_ptr<grpc::ServerCredentials> credentials) {
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort asked, ParseHostPort(listen));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, std::move(credentials), &port);
    // Else two coordinators could share a port, and each would get half the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kMinPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&policies_);
    builder.RegisterService(&membership_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot listen on ", listen,
          ": the port is taken by another process, or the address is not of this host; choose "
          "another one, or port 0 for any that is free"));
    }
    address_ = absl::StrCat(asked.host, ":", port);
    is_loopback_ = IsLoopback(asked.host);
    return absl::OkStatus();
  }

  // After Listen().
  absl::Status ServeHttp(const ServerOptions& options, std::shared_ptr<TokenFile> tokens,
                         std::function<StoreMeter()> meter, const Clock* clock) {
    const bool takes_tokens = tokens != nullptr;
    LOCKSTEP_ASSIGN_OR_RETURN(
        http_, HttpServer::Start({.listen = options.http,
                                  .tls = options.tls,
                                  .tokens = std::move(tokens),
                                  .insecure = options.insecure},
                                 WebRoutes({.coordinator = coordinator_.get(),
                                            .clock = clock,
                                            .channel = server_->InProcessChannel({}),
                                            .key = gate_.in_process_key(),
                                            .meter = std::move(meter),
                                            .is_open = options.tls.empty(),
                                            .takes_tokens = takes_tokens})));
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }
  std::string http_address() const { return http_ == nullptr ? "" : http_->address(); }
  bool is_loopback() const { return is_loopback_; }
  Coordinator& coordinator() { return *coordinator_; }

  void Stop() {
    // First the coordinator, so that streams end with its word for it.
    coordinator_->Shutdown();
    http_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kStopGrace);
  }

 private:
  // Services outlive the server, and the coordinator outlives the services.
  const std::unique_ptr<Coordinator> coordinator_;
  Gate gate_;
  JobService jobs_;
  SyncPolicyService policies_;
  MembershipService membership_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HttpServer> http_;
  std::string address_;
  bool is_loopback_ = false;
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const ServerOptions& options, std::unique_ptr<Store> store, const Clock* clock) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort asked, ParseHostPort(options.listen));
  if (options.tls.empty() && !options.insecure && !IsLoopback(asked.host)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "other hosts could reach ", options.listen,
        " and change all jobs, since there is no TLS; give a certificate (--tls-certificate), or "
        "say --insecure if the network is yours alone"));
  }
  std::shared_ptr<TokenFile> tokens;
  if (!options.tokens.empty()) {
    if (options.tls.empty()) {
      return absl::InvalidArgumentError(
          "tokens take TLS: without it they could be read by others on their way");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(tokens, TokenFile::Open(options.tokens, clock));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::shared_ptr<grpc::ServerCredentials> credentials,
      ServerCredentialsOf(options.tls, /*may_lack_certificate=*/tokens != nullptr));
  if (!options.tls.empty()) Authorize(credentials.get(), tokens);
  auto metered = std::make_unique<MeteredStore>(std::move(store), clock);
  std::function<StoreMeter()> meter = metered->meter();
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator,
                            Coordinator::Start(std::move(metered), clock));
  auto impl = std::make_unique<Impl>(std::move(coordinator), options, clock);
  LOCKSTEP_RETURN_IF_ERROR(impl->Listen(options.listen, std::move(credentials)));
  if (!options.http.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        impl->ServeHttp(options, std::move(tokens), std::move(meter), clock));
  }
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;

const std::string& CoordinatorServer::address() const { return impl_->address(); }
std::string CoordinatorServer::http_address() const { return impl_->http_address(); }
bool CoordinatorServer::is_loopback() const { return impl_->is_loopback(); }
void CoordinatorServer::AwaitEnd() { impl_->coordinator().AwaitEnd(); }
absl::Status CoordinatorServer::health() const { return impl_->coordinator().health(); }
void CoordinatorServer::Stop() { impl_->Stop(); }
void CoordinatorServer::RequestStop() { impl_->coordinator().Shutdown(); }

}  // namespace lockstep
