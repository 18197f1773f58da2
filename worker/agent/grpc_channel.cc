#include "worker/agent/grpc_channel.h"

#include <grpcpp/grpcpp.h>

namespace lockstep {

std::shared_ptr<grpc::Channel> OpenChannel(const CoordinatorAddress& coordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy that the environment names for the web does not lead to the coordinator.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A host that vanished without a word is noticed within 15 s. The coordinator
  // must allow pings as often as this (GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS).
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(coordinator.address, coordinator.credentials, arguments);
}

}  // namespace lockstep
