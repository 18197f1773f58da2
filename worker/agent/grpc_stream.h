// Message streams over gRPC: the Attend call of MembershipService.
//
// A thin adapter: encodes, decodes, queues. No rule lives here.
#ifndef LOCKSTEP_WORKER_AGENT_GRPC_STREAM_H_
#define LOCKSTEP_WORKER_AGENT_GRPC_STREAM_H_

#include <memory>
#include <string>

#include "worker/agent/grpc_channel.h"
#include "worker/agent/message_stream.h"

namespace lockstep {

// Each stream has a connection of its own, so that a new one does not wait for
// the back-off of an old one.
class GrpcDialer final : public StreamDialer {
 public:
  explicit GrpcDialer(CoordinatorAddress coordinator) : coordinator_(std::move(coordinator)) {}
  std::unique_ptr<MessageStream> Dial(MessageSink* sink) override;

 private:
  const CoordinatorAddress coordinator_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_GRPC_STREAM_H_
