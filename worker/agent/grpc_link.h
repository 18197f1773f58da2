// The link to a coordinator over gRPC.
//
// No gRPC header in here: who includes this file does not need one.
#ifndef LOCKSTEP_WORKER_AGENT_GRPC_LINK_H_
#define LOCKSTEP_WORKER_AGENT_GRPC_LINK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/protocol/messages.h"
#include "security/tls_files.h"
#include "worker/agent/coordinator_link.h"

namespace lockstep {

struct GrpcLinkOptions {
  std::string address;  // of the coordinator: "host:port"
  TlsFiles tls;
  // Time for the coordinator to welcome this worker the first time; within it,
  // failed attempts are repeated, so that both may be started in any order.
  absl::Duration connect_timeout = absl::Seconds(10);

  // Errors: InvalidArgument.
  absl::Status Validate() const;
};

// Attends the job that `hello` names. A link that is up outlives breaks of the
// connection and restarts of the coordinator.
// Errors: InvalidArgument: options, or `hello` lacks a name or its incarnation.
//   Unavailable: no answer within the connect timeout. Otherwise the status
//   with which the coordinator turned this worker away (NotFound: no such job).
absl::StatusOr<std::unique_ptr<CoordinatorLink>> ConnectToCoordinator(
    const GrpcLinkOptions& options, const Hello& hello);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_GRPC_LINK_H_
