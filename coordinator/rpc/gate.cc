#include "coordinator/rpc/gate.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proto/convert/status_convert.h"
#include "security/authorization.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxCallers = 10'000;
constexpr std::size_t kMaxWorkers = 50'000;

absl::Status TooOften(absl::string_view what, const Rate& rate) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, "; the limit is ", rate.per_second, " a second, and ", rate.burst,
                   " at once; try again later"));
}

}  // namespace

Gate::Gate(const CallLimits& limits, bool is_secured, const Clock* clock)
    : limits_(limits),
      is_secured_(is_secured),
      clock_(clock),
      calls_(limits.calls, kMaxCallers),
      hellos_(limits.hellos, kMaxWorkers) {}

absl::Status Gate::Admit(const grpc::ServerContextBase& context,
                         const google::protobuf::Message& request, absl::string_view job) {
  const Identity identity = Identify(context);
  if (is_secured_ && !identity.is_known) {
    return absl::PermissionDeniedError("nobody found out who makes this call");
  }
  {
    MutexLock lock(&mu_);
    if (!calls_.Admit(identity.who, clock_->Now())) {
      return TooOften(absl::StrCat(identity.who, " calls too often"), limits_.calls);
    }
  }
  const std::size_t bytes = request.ByteSizeLong();
  if (bytes > limits_.max_request_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the request has ", bytes,
                                                     " bytes, but may have at most ",
                                                     limits_.max_request_bytes));
  }
  return job.empty() ? absl::OkStatus() : CheckMayUse(identity.caller, job);
}

absl::Status Gate::BeginStream(StreamKind kind, const std::string& who) {
  const int limit = kind == StreamKind::kWatch ? limits_.watches : limits_.attending;
  MutexLock lock(&mu_);
  int& open = open_[static_cast<int>(kind)][who];
  if (open >= limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat(who, " holds ", open, kind == StreamKind::kWatch ? " watches" : " streams",
                     ", its limit; end some, or try again later"));
  }
  ++open;
  return absl::OkStatus();
}

void Gate::EndStream(StreamKind kind, const std::string& who) {
  MutexLock lock(&mu_);
  std::map<std::string, int>& open = open_[static_cast<int>(kind)];
  const auto found = open.find(who);
  if (found != open.end() && --found->second == 0) open.erase(found);
}

absl::Status Gate::AdmitHello(const Caller& caller, const std::string& job,
                              const std::string& worker) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMayAttend(caller, job, worker));
  MutexLock lock(&mu_);
  if (hellos_.Admit(absl::StrCat(job, "/", worker), clock_->Now())) return absl::OkStatus();
  return TooOften(absl::StrCat("worker '", worker, "' attends too often"), limits_.hellos);
}

grpc::ServerUnaryReactor* Refuse(Gate* gate, grpc::CallbackServerContext* context,
                                 const google::protobuf::Message& request, absl::string_view job) {
  const absl::Status admitted = gate->Admit(*context, request, job);
  if (admitted.ok()) return nullptr;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(admitted));
  return reactor;
}

Gate::Identity Gate::Identify(const grpc::ServerContextBase& context) const {
  Identity identity;
  if (std::optional<InProcessCaller> inside = FindInProcessCaller(context, in_process_key_)) {
    identity = {.caller = std::move(inside->caller), .who = std::move(inside->host),
                .is_known = true};
  } else {
    if (const auto auth = context.auth_context()) {
      identity.caller = CallerOf(*auth);
      identity.is_known = IsAuthorized(*auth);
    }
    // "ipv4:10.0.0.1:41234": each connection has another port.
    const std::string peer = context.peer();
    identity.who = peer.substr(0, peer.rfind(':'));
  }
  if (!identity.caller.name.empty()) identity.who = identity.caller.name;
  return identity;
}

}  // namespace lockstep
