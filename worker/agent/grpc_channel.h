// Connections to a coordinator, with the settings that all of a worker's share.
#ifndef LOCKSTEP_WORKER_AGENT_GRPC_CHANNEL_H_
#define LOCKSTEP_WORKER_AGENT_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

namespace lockstep {

// What the worker and the coordinator take as one message: a manifest of a
// million tensors fits.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Where the coordinator is, and by what it is known.
struct CoordinatorAddress {
  std::string address;  // "host:port"
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};

// A connection of its own, opened by the first call over it.
std::shared_ptr<grpc::Channel> OpenChannel(const CoordinatorAddress& coordinator);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_GRPC_CHANNEL_H_
