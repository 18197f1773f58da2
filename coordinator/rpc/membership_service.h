// MembershipService: how workers take part. One AttendStream per call.
#ifndef LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
#define LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_

#include "coordinator/rpc/attend_stream.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.grpc.pb.h"

namespace lockstep {

// Thread-safe. `coordinator` outlives it.
class MembershipService final : public v1::MembershipService::CallbackService {
 public:
  explicit MembershipService(Coordinator* coordinator, const AttendLimits& limits = {})
      : coordinator_(coordinator), limits_(limits) {}

  grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* Attend(
      grpc::CallbackServerContext* context) override;

 private:
  Coordinator* const coordinator_;
  const AttendLimits limits_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_MEMBERSHIP_SERVICE_H_
