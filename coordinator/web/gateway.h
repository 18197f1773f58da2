// Gateway: the API as JSON over HTTP: POST /lockstep.v1.JobService/GetJob {"job": "mnist"}.
//
// Requests, responses and errors are those of the Connect protocol's unary calls
// (connectrpc.com): messages in protobuf's JSON, errors as {"code", "message"}. Each becomes a call
// of the same gRPC services by the same caller, so roles and bounds hold alike. Methods that stream
// are not served. Thread-safe.
#ifndef LOCKSTEP_COORDINATOR_WEB_GATEWAY_H_
#define LOCKSTEP_COORDINATOR_WEB_GATEWAY_H_

#include <memory>
#include <string>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "http/router.h"

namespace lockstep {

class Gateway {
 public:
  // `channel`: to the services, inside this process, by calls with this key
  // (coordinator/rpc/in_process_caller.h). `is_open`: callers are not told apart.
  Gateway(std::shared_ptr<grpc::Channel> channel, std::string key, bool is_open)
      : channel_(std::move(channel)), key_(std::move(key)), is_open_(is_open) {}

  HttpResponse Call(const HttpRequest& request) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::string key_;
  const bool is_open_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_WEB_GATEWAY_H_
