// AttendStream: a worker's stream, between gRPC and the coordinator.
//
//   open --End(), cancel, broken read or write, a bound--> ending --> finished
//
// One read and one write are in flight; what waits to be written is bounded. What
// waits when the coordinator ends the stream is still written before the status.
// Two objects: the reactor, which gRPC deletes in OnDone, and the sink, which the
// coordinator may hold a little longer.
#ifndef LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_
#define LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_

#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/membership.pb.h"

namespace lockstep {

struct AttendLimits {
  std::size_t max_waiting_messages = 1000;
  std::size_t max_waiting_bytes = 64u << 20;
};

// The reactor deletes itself. `coordinator` outlives it.
grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* NewAttendStream(
    Coordinator* coordinator, const AttendLimits& limits);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_
