#include "coordinator/rpc/membership_service.h"

namespace lockstep {

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* MembershipService::Attend(
    grpc::CallbackServerContext* context) {
  return NewAttendStream(coordinator_, gate_, &wire_, context, limits_);
}

}  // namespace lockstep
