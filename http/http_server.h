// HttpServer: serves routes over HTTP, or HTTPS with the certificates and tokens that gRPC's
// callers have (GNU libmicrohttpd). Answers are whole: there are no streams.
//
// What is served, and who may ask for it, is router.h's. Thread-safe; handlers run on its threads,
// several at once, and may block for some seconds.
#ifndef LOCKSTEP_HTTP_HTTP_SERVER_H_
#define LOCKSTEP_HTTP_HTTP_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "http/router.h"
#include "security/tls_files.h"
#include "security/token_file.h"

namespace lockstep {

struct HttpOptions {
  std::string listen;  // HOST:PORT; port 0: any free one
  // None: whoever reaches the port is served. Files are read again within seconds after they change.
  TlsFiles tls;
  std::shared_ptr<TokenFile> tokens;  // null: none are known
  // Without TLS other hosts are served only if this is set.
  bool insecure = false;
};

class HttpServer {
 public:
  // Errors: InvalidArgument: no HOST:PORT. FailedPrecondition: the port is taken, or other hosts
  //   could reach it. Those of TlsFiles.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::vector<HttpRoute> routes);
  ~HttpServer();  // waits for handlers

  // HOST:PORT with the port that was bound.
  const std::string& address() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_HTTP_HTTP_SERVER_H_
