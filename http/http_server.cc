#include "http/http_server.h"

#include <microhttpd.h>
#include <netdb.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "security/authentication.h"
#include "security/https.h"

namespace lockstep {
namespace {

constexpr unsigned kThreads = 8;
constexpr unsigned kMaxConnections = 500;
constexpr unsigned kMaxConnectionsOfOneHost = 200;
constexpr unsigned kIdleSeconds = 30;
// Of headers, and of what is read at once.
constexpr std::size_t kConnectionBytes = 64u << 10;
constexpr std::size_t kMaxBodyBytes = 4u << 20;
constexpr absl::Duration kLookEvery = absl::Seconds(5);
// TLS 1.2 and 1.3. A session that is resumed shows no certificate.
constexpr char kTlsPriorities[] = "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:%NO_TICKETS";

using Daemon = std::unique_ptr<MHD_Daemon, decltype(&MHD_stop_daemon)>;

struct Secrets {
  std::string certificate, key, authorities;
  friend bool operator==(const Secrets&, const Secrets&) = default;
};

absl::StatusOr<Secrets> ReadSecrets(const TlsFiles& tls) {
  Secrets secrets;
  LOCKSTEP_ASSIGN_OR_RETURN(secrets.certificate, ReadFile(tls.certificate));
  LOCKSTEP_ASSIGN_OR_RETURN(secrets.key, ReadFile(tls.key));
  LOCKSTEP_ASSIGN_OR_RETURN(secrets.authorities, ReadFile(tls.authorities));
  return secrets;
}

std::string Header(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

std::string PeerOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char host[NI_MAXHOST];
  const socklen_t bytes =
      info->client_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int error = getnameinfo(info->client_addr, bytes, host, sizeof(host), nullptr, 0,
                                NI_NUMERICHOST);
  return error == 0 ? host : "unknown";
}

// What came of a request's body so far.
struct Body {
  std::string text;
  bool is_too_large = false;
};

MHD_Result Send(MHD_Connection* connection, const HttpResponse& response) {
  MHD_Response* const out =
      MHD_create_response_from_buffer(response.body.size(), const_cast<char*>(response.body.data()),
                                      MHD_RESPMEM_MUST_COPY);
  MHD_add_response_header(out, "Content-Type", response.type.c_str());
  MHD_add_response_header(out, "Cache-Control", "no-store");
  MHD_add_response_header(out, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(out, "Referrer-Policy", "no-referrer");
  MHD_add_response_header(out, "Content-Security-Policy",
                          "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
                          "form-action 'none'");
  const MHD_Result queued =
      MHD_queue_response(connection, static_cast<unsigned>(response.status), out);
  MHD_destroy_response(out);
  return queued;
}

struct AddressInfo {
  addrinfo* list = nullptr;
  ~AddressInfo() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, std::vector<HttpRoute> routes)
      : options_(options), routes_(std::move(routes)), daemon_(nullptr, &MHD_stop_daemon) {}

  ~Impl() {
    {
      MutexLock lock(&mu_);
      is_ending_ = true;
    }
    changed_.SignalAll();
    if (renewer_.joinable()) renewer_.join();
  }

  absl::Status Begin() {
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(options_.listen));
    LOCKSTEP_RETURN_IF_ERROR(options_.tls.ValidateForServer());
    is_loopback_ = IsLoopback(listen.host);
    if (options_.tls.empty() && !options_.insecure && !is_loopback_) {
      return absl::FailedPreconditionError(
          absl::StrCat("other hosts could read what ", options_.listen,
                       " serves, since there is no TLS; give a certificate (--tls-certificate), "
                       "or say --insecure if the network is yours alone"));
    }
    if (!options_.tls.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(secrets_, ReadSecrets(options_.tls));
    }
    AddressInfo found;
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    std::string host = listen.host;
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const int error = getaddrinfo(host.c_str(), std::to_string(listen.port).c_str(), &hints,
                                  &found.list);
    if (error != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot listen on ", options_.listen, ": ", gai_strerror(error)));
    }
    daemon_ = StartDaemon(MHD_INVALID_SOCKET, found.list->ai_addr);
    if (daemon_ == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot serve HTTP on ", options_.listen,
          ": the port is taken by another process, the address is not of this host, or the "
          "certificate and its key do not fit"));
    }
    const MHD_DaemonInfo* const info =
        MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_BIND_PORT);
    address_ = absl::StrCat(listen.host, ":", info->port);
    if (!options_.tls.empty()) renewer_ = std::thread([this] { Renew(); });
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  // On `socket`, or on `address` if that is none.
  Daemon StartDaemon(MHD_socket socket, const sockaddr* address) {
    // ITC: so that another daemon can take over the socket.
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC;
    std::vector<MHD_OptionItem> items = {
        {MHD_OPTION_THREAD_POOL_SIZE, kThreads, nullptr},
        {MHD_OPTION_CONNECTION_LIMIT, kMaxConnections, nullptr},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMaxConnectionsOfOneHost, nullptr},
        {MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, nullptr},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, nullptr},
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, nullptr},
    };
    if (!options_.tls.empty()) {
      flags |= MHD_USE_TLS;
      items.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, secrets_.certificate.data()});
      items.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, secrets_.key.data()});
      items.push_back({MHD_OPTION_HTTPS_MEM_TRUST, 0, secrets_.authorities.data()});
      items.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)});
    }
    if (socket != MHD_INVALID_SOCKET) {
      items.push_back({MHD_OPTION_LISTEN_SOCKET, socket, nullptr});
    } else {
      if (address->sa_family == AF_INET6) flags |= MHD_USE_IPv6;
      items.push_back({MHD_OPTION_SOCK_ADDR, 0, const_cast<sockaddr*>(address)});
    }
    items.push_back({MHD_OPTION_END, 0, nullptr});
    return Daemon(MHD_start_daemon(flags, 0, nullptr, nullptr, &Impl::OnRequest, this,
                                   MHD_OPTION_ARRAY, items.data(), MHD_OPTION_NOTIFY_COMPLETED,
                                   &Impl::OnEnd, nullptr, MHD_OPTION_END),
                  &MHD_stop_daemon);
  }

  // libmicrohttpd takes its certificate once: a new one takes over the socket.
  void Renew() {
    while (true) {
      {
        MutexLock lock(&mu_);
        if (changed_.AwaitFor(&mu_, kLookEvery, [this] { return is_ending_; })) return;
      }
      absl::StatusOr<Secrets> read = ReadSecrets(options_.tls);
      if (!read.ok() || *read == secrets_) continue;
      const Secrets before = std::exchange(secrets_, *std::move(read));
      const MHD_socket socket = MHD_quiesce_daemon(daemon_.get());
      Daemon renewed = StartDaemon(socket, nullptr);
      if (renewed == nullptr) {
        LogError("the certificate ", options_.tls.certificate,
                 " and its key cannot be used for HTTPS; the one before stays");
        secrets_ = before;
        renewed = StartDaemon(socket, nullptr);
      }
      // Ends requests under way on the old one first.
      daemon_ = std::move(renewed);
    }
  }

  static void OnEnd(void*, MHD_Connection*, void** state, MHD_RequestTerminationCode) {
    delete static_cast<Body*>(*state);
    *state = nullptr;
  }

  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char*, const char* data,
                              std::size_t* bytes, void** state) {
    return static_cast<Impl*>(self)->Take(connection, url, method, data, bytes, state);
  }

  // Called first without data, then for each piece of the body, then without any again.
  MHD_Result Take(MHD_Connection* connection, const char* url, const char* method,
                  const char* data, std::size_t* bytes, void** state) {
    if (*state == nullptr) {
      *state = new Body;
      return MHD_YES;
    }
    Body& body = *static_cast<Body*>(*state);
    if (*bytes > 0) {
      if (body.text.size() + *bytes > kMaxBodyBytes) {
        body.is_too_large = true;
      } else {
        body.text.append(data, *bytes);
      }
      *bytes = 0;
      return body.is_too_large ? MHD_NO : MHD_YES;
    }
    return Send(connection, Answer(connection, url, method, body));
  }

  HttpResponse Answer(MHD_Connection* connection, const char* url, const char* method,
                      Body& body) {
    HttpRequest request = {.method = method,
                           .path = url,
                           .content_type = Header(connection, MHD_HTTP_HEADER_CONTENT_TYPE),
                           .body = std::move(body.text),
                           .host = Header(connection, MHD_HTTP_HEADER_HOST),
                           .origin = Header(connection, MHD_HTTP_HEADER_ORIGIN),
                           .from = PeerOf(connection)};
    const bool is_open = options_.tls.empty();
    // Else a page of another site, whose name leads here, could do everything in a browser.
    if (is_open && is_loopback_ && !IsLoopbackHost(request.host)) {
      return {.status = 403, .body = "ask for this server by a name of this machine\n"};
    }
    return Respond(routes_, std::move(request), Identify(connection), is_open);
  }

  absl::StatusOr<Caller> Identify(MHD_Connection* connection) {
    if (options_.tls.empty()) return Caller();
    const MHD_ConnectionInfo* const info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    Shown shown = ShownBy(static_cast<gnutls_session_int*>(info->tls_session));
    const std::string authorization = Header(connection, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!authorization.empty()) shown.authorization = authorization;
    return Authenticate(shown, options_.tokens.get());
  }

  const HttpOptions options_;
  const std::vector<HttpRoute> routes_;
  bool is_loopback_ = false;
  std::string address_;
  Secrets secrets_;  // the renewer's, once it runs
  Daemon daemon_;    // so is this
  Mutex mu_;
  CondVar changed_;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread renewer_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              std::vector<HttpRoute> routes) {
  auto impl = std::make_unique<Impl>(options, std::move(routes));
  LOCKSTEP_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace lockstep
