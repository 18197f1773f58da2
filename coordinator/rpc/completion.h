// Completion: the one answer of a unary call.
//
// Answers exactly once, on every path: one that is dropped answers CANCELLED.
// Thread-compatible.
#ifndef LOCKSTEP_COORDINATOR_RPC_COMPLETION_H_
#define LOCKSTEP_COORDINATOR_RPC_COMPLETION_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/convert/status_convert.h"

namespace lockstep {

class Completion {
 public:
  explicit Completion(grpc::ServerUnaryReactor* reactor) : reactor_(reactor) {}
  ~Completion() { Finish(absl::CancelledError("the coordinator dropped the request")); }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Later calls have no effect. The call's request and response are gone afterwards.
  void Finish(const absl::Status& status) {
    if (grpc::ServerUnaryReactor* reactor = std::exchange(reactor_, nullptr)) {
      reactor->Finish(ToGrpcStatus(status));
    }
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
};

using SharedCompletion = std::shared_ptr<Completion>;

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_COMPLETION_H_
