// AttendStream: a worker's stream, between gRPC and the coordinator.
//
//   open --End(), cancel, broken read or write, a bound--> ending --> finished
//
// One read and one write are in flight; what waits to be written is bounded, and so is how often a
// worker speaks and how long it may be silent before its Hello. What waits when the coordinator
// ends the stream is still written before the status.
// Two objects: the reactor, which gRPC deletes in OnDone, and the sink, which the
// coordinator may hold a little longer. Both sides are bytes to gRPC, so that a Proposal to
// thousands of workers is put into its wire form once, and lies in memory once.
#ifndef LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_
#define LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "coordinator/core/events.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "security/rate_limiter.h"

namespace lockstep {

struct AttendLimits {
  std::size_t max_waiting_messages = 1000;
  std::size_t max_waiting_bytes = 64u << 20;
  absl::Duration hello_timeout = absl::Seconds(10);
  // For a worker to read the end of its stream; one that does not is cut off.
  absl::Duration end_timeout = absl::Seconds(5);
  Rate messages = {.per_second = 200, .burst = 2000};
};

// The wire form of messages; that of the last one is kept for who sends the same. Thread-safe.
class WireForm {
 public:
  grpc::ByteBuffer Of(const SharedMessage& message);

 private:
  Mutex mu_;
  SharedMessage last_ ABSL_GUARDED_BY(mu_);
  grpc::ByteBuffer bytes_ ABSL_GUARDED_BY(mu_);  // of `last_`; copies share them
};

// The reactor deletes itself. `coordinator`, `gate` and `wire` outlive it.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewAttendStream(
    Coordinator* coordinator, Gate* gate, WireForm* wire, grpc::CallbackServerContext* context,
    const AttendLimits& limits);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_ATTEND_STREAM_H_
