// InProcessCaller: who a call is for that this process makes of its own services, as the web
// server does for those who ask it. Such calls pass the same checks as calls from outside.
//
// It travels as metadata, and is believed only on a channel inside the process.
#ifndef LOCKSTEP_COORDINATOR_RPC_IN_PROCESS_CALLER_H_
#define LOCKSTEP_COORDINATOR_RPC_IN_PROCESS_CALLER_H_

#include <optional>
#include <string>

#include "grpcpp/grpcpp.h"
#include "security/caller.h"

namespace lockstep {

struct InProcessCaller {
  Caller caller;     // whose roles were checked
  std::string host;  // its address
};

void SetInProcessCaller(const InProcessCaller& caller, grpc::ClientContext* context);

// Nothing: the call came from outside.
std::optional<InProcessCaller> FindInProcessCaller(const grpc::ServerContextBase& context);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_IN_PROCESS_CALLER_H_
