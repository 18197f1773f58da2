// MembershipService: how workers take part. One AttendStream per call.
#ifndef LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
#define LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_

#include "coordinator/rpc/attend_stream.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.grpc.pb.h"

namespace lockstep {

// Thread-safe. `coordinator` and `gate` outlive it.
class MembershipService final
    : public v1::MembershipService::WithRawCallbackMethod_Attend<v1::MembershipService::Service> {
 public:
  MembershipService(Coordinator* coordinator, Gate* gate, const AttendLimits& limits)
      : coordinator_(coordinator), gate_(gate), limits_(limits) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator* const coordinator_;
  Gate* const gate_;
  WireForm wire_;
  const AttendLimits limits_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
