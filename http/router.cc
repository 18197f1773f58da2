#include "http/router.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

bool Matches(const HttpRoute& route, absl::string_view path) {
  absl::string_view prefix = route.path;
  if (absl::ConsumeSuffix(&prefix, "*")) return absl::StartsWith(path, prefix);
  return path == route.path;
}

// A browser sends the page's origin with what a script of it posts.
bool IsOfThisServer(const HttpRequest& request) {
  absl::string_view origin = request.origin;
  if (origin.empty()) return true;
  if (!absl::ConsumePrefix(&origin, "https://")) absl::ConsumePrefix(&origin, "http://");
  return origin == request.host;
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpResponse Plain(int status, std::string text) {
  return {.status = status, .body = std::move(text)};
}

}  // namespace

HttpResponse JsonResponse(int status, const nlohmann::json& body) {
  return {.status = status,
          .type = "application/json",
          .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

HttpResponse ErrorResponse(const absl::Status& error) {
  return JsonResponse(HttpStatusOf(error.code()),
                      {{"code", absl::AsciiStrToLower(absl::StatusCodeToString(error.code()))},
                       {"message", std::string(error.message())}});
}

HttpResponse Respond(const std::vector<HttpRoute>& routes, HttpRequest request,
                     const absl::StatusOr<Caller>& identified, bool is_open) {
  const HttpRoute* route = nullptr;
  bool is_path = false;
  for (const HttpRoute& each : routes) {
    if (!Matches(each, request.path)) continue;
    is_path = true;
    if (each.method == request.method) route = &each;
  }
  if (route == nullptr) {
    return is_path ? Plain(405, "this method is not for this path\n")
                   : Plain(404, "there is nothing here\n");
  }
  if (route->access != HttpAccess::kAnybody && !is_open) {
    if (!identified.ok()) return ErrorResponse(identified.status());
    const bool may_view = identified->roles.contains(Role::kViewer) ||
                          identified->roles.contains(Role::kOperator);
    if (route->access == HttpAccess::kViewer && !may_view) {
      return ErrorResponse(absl::PermissionDeniedError("this takes the role viewer or operator"));
    }
  }
  if (request.method == "POST") {
    if (!IsOfThisServer(request)) return Plain(403, "a page of another site may not do this\n");
    const absl::string_view type =
        absl::string_view(request.content_type).substr(0, request.content_type.find(';'));
    if (absl::StripAsciiWhitespace(type) != "application/json") {
      return Plain(415, "the body must be application/json\n");
    }
  }
  if (identified.ok()) request.caller = *identified;
  return route->handler(request);
}

bool IsLoopbackHost(absl::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool has_port = colon != absl::string_view::npos && !absl::EndsWith(host, "]");
  return IsLoopback(has_port ? host.substr(0, colon) : host);
}

}  // namespace lockstep
