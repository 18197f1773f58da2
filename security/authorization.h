// Authorization: asks roles.h for each call of a server with TLS, before it reaches a service.
#ifndef LOCKSTEP_SECURITY_AUTHORIZATION_H_
#define LOCKSTEP_SECURITY_AUTHORIZATION_H_

#include <grpcpp/security/server_credentials.h>

namespace lockstep {

// Calls without the role that they take end with PERMISSION_DENIED. `credentials`: with TLS.
void Authorize(grpc::ServerCredentials* credentials);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_AUTHORIZATION_H_
