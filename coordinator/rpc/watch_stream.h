// WatchStream: the states of one job, to one reader.
//
// One write is in flight. Changes meanwhile leave a mark, and the next write
// takes the state as it is then: a slow reader gets the newest state, not every
// state, and nothing piles up. Ends OK when the job is deleted.
#ifndef LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_
#define LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_

#include <string>

#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// The reactor deletes itself. `coordinator` outlives it.
grpc::ServerWriteReactor<v1::WatchJobResponse>* NewWatchStream(Coordinator* coordinator,
                                                               const std::string& job);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_WATCH_STREAM_H_
