// Gate: what every call passes before it is served: to which jobs its caller is bound, how often
// and how much that caller asks, how many streams it holds.
//
// Who the caller is, and whether its role may make the call at all, was found before
// (security/authorization.h, or by the web server). With TLS a call for which it was not is
// refused. Without TLS callers are told apart by their host. Thread-safe.
#ifndef LOCKSTEP_COORDINATOR_RPC_GATE_H_
#define LOCKSTEP_COORDINATOR_RPC_GATE_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "coordinator/rpc/in_process_caller.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "security/caller.h"
#include "security/rate_limiter.h"

namespace lockstep {

struct CallLimits {
  Rate calls = {.per_second = 200, .burst = 1000};  // of each caller, without messages of streams
  std::size_t max_request_bytes = 4u << 20;         // of a call that is no stream
  int watches = 500;                                // of each caller
  int attending = 10'000;                           // streams of workers, of each caller
  Rate hellos = {.per_second = 1, .burst = 30};     // of each worker
};

enum class StreamKind { kWatch, kAttend };

class Gate {
 public:
  // `is_secured`: with TLS. `clock` outlives it.
  Gate(const CallLimits& limits, bool is_secured, const Clock* clock);

  // `job`: that it concerns; empty: none. Errors: PermissionDenied: the caller is bound to others,
  //   or nobody found out who it is.
  //   ResourceExhausted: too often, or too large.
  absl::Status Admit(const grpc::ServerContextBase& context,
                     const google::protobuf::Message& request, absl::string_view job);

  // Of the call of `who`, as a stream begins and ends. Errors: ResourceExhausted.
  absl::Status BeginStream(StreamKind kind, const std::string& who);
  void EndStream(StreamKind kind, const std::string& who);

  // A worker's first message. Errors: PermissionDenied, ResourceExhausted.
  absl::Status AdmitHello(const Caller& caller, const std::string& job, const std::string& worker);

  struct Identity {
    Caller caller;
    std::string who;        // by which its calls are counted: its name, else its host
    bool is_known = false;  // somebody found out who it is; without TLS nobody does
  };
  Identity Identify(const grpc::ServerContextBase& context) const;

  // For calls that this process makes of its own services.
  const std::string& in_process_key() const { return in_process_key_; }
  MonoTime Now() const { return clock_->Now(); }

 private:
  const CallLimits limits_;
  const bool is_secured_;
  const Clock* const clock_;
  const std::string in_process_key_ = NewInProcessKey();
  Mutex mu_;
  RateLimiter calls_ ABSL_GUARDED_BY(mu_);
  RateLimiter hellos_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> open_[2] ABSL_GUARDED_BY(mu_);  // by kind
};

// A call that is not admitted is answered, and its reactor returned; else null.
grpc::ServerUnaryReactor* Refuse(Gate* gate, grpc::CallbackServerContext* context,
                                 const google::protobuf::Message& request, absl::string_view job);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_GATE_H_
