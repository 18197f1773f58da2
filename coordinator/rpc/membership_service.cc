#include "coordinator/rpc/membership_service.h"

namespace lockstep {

grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* MembershipService::Attend(
    grpc::CallbackServerContext* context) {
  return NewAttendStream(coordinator_, gate_, context, limits_);
}

}  // namespace lockstep
