// WatchStream: the states of one job, to one reader.
//
// One write is in flight, and the next one begins kWatchPause after it at the earliest. Changes
// meanwhile leave a mark, and the next write takes the state as it is then: a slow reader gets the
// newest state, not every state, and nothing piles up. Ends OK when the job is deleted.
#ifndef LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_
#define LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_

#include "absl/time/time.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// A job of thousands of workers changes thousands of times a second.
inline constexpr absl::Duration kWatchPause = absl::Milliseconds(100);

// The reactor deletes itself. `coordinator` and `gate` outlive it.
grpc::ServerWriteReactor<v1::WatchJobResponse>* NewWatchStream(
    Coordinator* coordinator, Gate* gate, const grpc::ServerContextBase& context,
    const v1::WatchJobRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_
