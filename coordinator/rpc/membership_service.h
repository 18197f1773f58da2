// MembershipService: how workers take part. One AttendStream per call.
#ifndef LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
#define LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_

#include "coordinator/rpc/attend_stream.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.grpc.pb.h"

namespace lockstep {

// Thread-safe. `coordinator` and `gate` outlive it.
class MembershipService final : public v1::MembershipService::CallbackService {
 public:
  MembershipService(Coordinator* coordinator, Gate* gate, const AttendLimits& limits)
      : coordinator_(coordinator), gate_(gate), limits_(limits) {}

  grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* Attend(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator* const coordinator_;
  Gate* const gate_;
  const AttendLimits limits_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
