// InProcessCaller: who a call is for that this process makes of its own services, as the web
// server does for those who ask it. Such calls pass the same checks as calls from outside.
//
// It travels as metadata, with a key that nobody outside the process knows. Any thread.
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

// Random; one for each server.
std::string NewInProcessKey();

void SetInProcessCaller(const InProcessCaller& caller, const std::string& key,
                        grpc::ClientContext* context);

// Nothing: the call came from outside.
std::optional<InProcessCaller> FindInProcessCaller(const grpc::ServerContextBase& context,
                                                   const std::string& key);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_IN_PROCESS_CALLER_H_
