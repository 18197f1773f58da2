// TlsFiles: where a program's certificate is, and whom it trusts. Values; any thread.
#ifndef LOCKSTEP_SECURITY_TLS_FILES_H_
#define LOCKSTEP_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Paths of files. None: without TLS.
struct TlsFiles {
  std::string certificate;  // PEM; this side's, with the chain to the authority if there is one
  std::string key;          // PEM; its private key
  std::string authorities;  // PEM; the certificates that the other side's must be signed by
  // Of a client: a bearer token, which says who it is, instead of a certificate or besides one.
  std::string token;

  bool empty() const {
    return certificate.empty() && key.empty() && authorities.empty() && token.empty();
  }

  // Errors: InvalidArgument: some are missing: a server takes the three of PEM, a client
  //   authorities and a certificate with its key, or a token, or both. NotFound,
  //   PermissionDenied: one of them cannot be read; named.
  absl::Status ValidateForServer() const;
  absl::Status ValidateForClient() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TLS_FILES_H_
