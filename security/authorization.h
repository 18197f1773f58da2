// Authorization: finds out who makes a call of a server with TLS, and asks roles.h whether they may,
// before it reaches a service. Thread-safe.
#ifndef LOCKSTEP_SECURITY_AUTHORIZATION_H_
#define LOCKSTEP_SECURITY_AUTHORIZATION_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "security/caller.h"
#include "security/token_file.h"

namespace lockstep {

// A call with a bearer token is that token's caller, another that of its certificate. Calls without
// either, or with a token that is not good, end with UNAUTHENTICATED; those without the role that
// they take, with PERMISSION_DENIED. `credentials`: with TLS. `tokens`: null: none are known.
void Authorize(grpc::ServerCredentials* credentials, std::shared_ptr<TokenFile> tokens);

// Whether a call was let through; never of a server without TLS.
bool IsAuthorized(const grpc::AuthContext& context);
// Who made it; of a server without TLS: Caller().
Caller CallerOf(const grpc::AuthContext& context);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_AUTHORIZATION_H_
