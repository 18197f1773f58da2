// Routes: what a server of pages serves, and who may ask for it. Pure: requests in, responses out;
// any thread.
#ifndef LOCKSTEP_HTTP_ROUTER_H_
#define LOCKSTEP_HTTP_ROUTER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"
#include "security/caller.h"

namespace lockstep {

struct HttpRequest {
  std::string method;
  std::string path;          // without query
  std::string content_type;  // of the body
  std::string body;
  std::string host;    // as the request names the server: the header of that name
  std::string origin;  // of the page that sends it, as a browser says; empty: none
  std::string from;    // the caller's address
  Caller caller;       // as the server found; without TLS: Caller()
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// Who may ask for a route.
enum class HttpAccess {
  kAnybody,   // without a certificate, too
  kViewer,    // who has the role viewer or operator
  kHandlers,  // who is known; the handler decides what they may
};

struct HttpRoute {
  std::string method = "GET";  // or "POST", with a body of JSON
  std::string path;            // exact; one that ends with "/*" is a prefix
  HttpAccess access = HttpAccess::kViewer;
  std::function<HttpResponse(const HttpRequest&)> handler;
};

// What `identified` says: who asks, where callers are known; else Caller(). `is_open`: there is no
// TLS, so that callers are not told apart and each may do everything.
// Answers without a handler: 401, 403 (also where a page of another site sends the request), 404,
// 405, 415 (no JSON).
HttpResponse Respond(const std::vector<HttpRoute>& routes, HttpRequest request,
                     const absl::StatusOr<Caller>& identified, bool is_open);

// What is no UTF-8 in `body` is replaced.
HttpResponse JsonResponse(int status, const nlohmann::json& body);

// The status and the JSON {"code": "not_found", "message": ...} that an error answers with, as the
// Connect protocol (connectrpc.com) has it.
HttpResponse ErrorResponse(const absl::Status& error);

// Whether the header Host, with or without a port, names this machine alone.
bool IsLoopbackHost(absl::string_view host);

}  // namespace lockstep

#endif  // LOCKSTEP_HTTP_ROUTER_H_
