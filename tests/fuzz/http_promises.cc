// A request to the coordinator's web server, as text: "METHOD PATH", lines "NAME: VALUE" for the
// headers that the server looks at, an empty line, the body. "Role: viewer" gives its sender a role.
//
// Nobody without a role reaches a handler that takes one, no page of another site reaches one that
// changes something. A call's body is refused with an error
// that can be shown, or it is a message that survives JSON and whose policy the core can judge. A
// body that is a list of tokens is refused, or read.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/mono_time.h"
#include "common/base/status_macros.h"
#include "coordinator/web/json_call.h"
#include "http/router.h"
#include "lockstep/v1/policy.pb.h"
#include "proto/convert/convert.h"
#include "security/authentication.h"
#include "security/token_list.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

struct Parsed {
  HttpRequest request;
  std::map<std::string, std::string> headers;  // by lower-case name
};

Parsed Read(absl::string_view bytes) {
  Parsed parsed;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(bytes, absl::MaxSplits("\n\n", 1));
  const std::vector<absl::string_view> lines = absl::StrSplit(parts.first, '\n');
  const std::pair<std::string, std::string> first = absl::StrSplit(lines[0], absl::MaxSplits(' ', 1));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    parsed.headers[absl::AsciiStrToLower(header.first)] = std::string(header.second);
  }
  parsed.request = {.method = first.first,
                    .path = first.second,
                    .content_type = parsed.headers["content-type"],
                    .body = std::string(parts.second),
                    .host = parsed.headers["host"],
                    .origin = parsed.headers["origin"],
                    .from = "192.0.2.1"};
  return parsed;
}

absl::Status CheckRouting(const Parsed& parsed, const absl::StatusOr<Caller>& caller) {
  bool reached_open = false, reached_viewers = false, reached_call = false;
  const auto note = [](bool* reached) {
    return [reached](const HttpRequest&) {
      *reached = true;
      return HttpResponse();
    };
  };
  const std::vector<HttpRoute> routes = {
      {.path = "/livez", .access = HttpAccess::kAnybody, .handler = note(&reached_open)},
      {.path = "/metrics", .handler = note(&reached_viewers)},
      {.method = "POST",
       .path = "/lockstep.v1.*",
       .access = HttpAccess::kHandlers,
       .handler = note(&reached_call)}};
  const HttpResponse response = Respond(routes, parsed.request, caller, /*is_open=*/false);
  const std::string& path = parsed.request.path;
  LOCKSTEP_RETURN_IF_ERROR(Holds(response.status >= 200 && response.status < 600,
                                 "an answer has a status", path));
  LOCKSTEP_RETURN_IF_ERROR(Holds(!reached_call || caller.ok(), "a call has a caller", path));
  const bool may_view = caller.ok() && (caller->roles.contains(Role::kViewer) ||
                                        caller->roles.contains(Role::kOperator));
  LOCKSTEP_RETURN_IF_ERROR(Holds(!reached_viewers || may_view, "viewers alone see", path));
  const std::string& origin = parsed.request.origin;
  return Holds(!reached_call || origin.empty() || absl::EndsWith(origin, parsed.request.host),
               "pages of other sites call nothing", origin);
}

// Whether the body is a call that can be made.
absl::StatusOr<bool> CheckCall(const HttpRequest& request) {
  const absl::StatusOr<JsonCall> call = ParseJsonCall(request.path, request.body);
  LOCKSTEP_RETURN_IF_ERROR(IsOkOr({absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound,
                                   absl::StatusCode::kUnimplemented},
                                  call.status(), "ParseJsonCall"));
  if (!call.ok()) return false;
  const absl::StatusOr<std::string> json = ToJson(*call->request);
  if (!json.ok()) return false;  // an Any or a Timestamp out of its range
  const absl::StatusOr<JsonCall> again = ParseJsonCall(request.path, *json);
  LOCKSTEP_RETURN_IF_ERROR(Holds(again.ok() && again->request->SerializeAsString() ==
                                                   call->request->SerializeAsString(),
                                 "a message survives JSON", *json));
  v1::UpdateSyncPolicyRequest update;
  if (call->request->GetTypeName() == update.GetTypeName()) {
    update.CopyFrom(*call->request);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOr({absl::StatusCode::kInvalidArgument},
                                    FromProto(update.policy()).status(), "FromProto"));
  }
  return true;
}

absl::Status CheckTokens(const HttpRequest& request) {
  const absl::StatusOr<TokenList> list = TokenList::Parse(request.body);
  LOCKSTEP_RETURN_IF_ERROR(
      IsOkOr({absl::StatusCode::kInvalidArgument}, list.status(), "TokenList::Parse"));
  if (!list.ok()) return absl::OkStatus();
  const bool is_listed = absl::StrContains(request.body, Sha256(request.path));
  return Holds(is_listed || !list->Find(request.path, absl::UnixEpoch()).ok(),
               "a token is good by its hash alone", request.path);
}

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  const Parsed parsed = Read(bytes);
  Shown shown;
  if (const auto found = parsed.headers.find("authorization"); found != parsed.headers.end()) {
    shown.authorization = found->second;
  }
  if (const auto found = parsed.headers.find("role"); found != parsed.headers.end()) {
    shown.has_certificate = true;
    shown.dns_names = {absl::StrCat(found->second, ".role.lockstep")};
  }
  const absl::StatusOr<Caller> caller = Authenticate(shown, /*tokens=*/nullptr);
  LOCKSTEP_RETURN_IF_ERROR(
      IsOkOr({absl::StatusCode::kUnauthenticated}, caller.status(), "Authenticate"));
  LOCKSTEP_RETURN_IF_ERROR(Holds(!caller.ok() || !shown.authorization.has_value(),
                                 "no token is good where none is known", bytes));
  LOCKSTEP_RETURN_IF_ERROR(CheckRouting(parsed, caller));
  LOCKSTEP_RETURN_IF_ERROR(CheckTokens(parsed.request));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool is_call, CheckCall(parsed.request));
  if (is_call) return Reached::kChecked;
  return parsed.request.path.empty() ? Reached::kUnread : Reached::kRefused;
}

}  // namespace lockstep
