// TLS: gRPC credentials of certificate files. Both sides show a certificate and check the
// other's; files are read again a few seconds after they change, and connections that are
// made from then on use them.
//
// Who may do what is authorization.h's. Pure values and functions; any thread.
#ifndef LOCKSTEP_SECURITY_TLS_H_
#define LOCKSTEP_SECURITY_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "security/tls_files.h"

namespace lockstep {

// Those of a server. Errors: ValidateForServer()'s.
// `may_lack_certificate`: clients who show none are not turned away yet: they may have a token.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(
    const TlsFiles& tls, bool may_lack_certificate = false);

// Those of a client, who also checks that the server's certificate is of the host it dialled. The
// file with the token is read for each call. Errors: ValidateForClient()'s.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(
    const TlsFiles& tls);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TLS_H_
