// TlsFiles: where a program's certificate is, and whom it trusts. Values; any thread.
#ifndef LOCKSTEP_SECURITY_TLS_FILES_H_
#define LOCKSTEP_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/status.h"

namespace lockstep {

// Paths of PEM files; all of them, or none: without TLS.
struct TlsFiles {
  std::string certificate;  // this side's, with the chain to the authority if there is one
  std::string key;          // its private key
  std::string authorities;  // the certificates that the other side's must be signed by

  bool empty() const { return certificate.empty() && key.empty() && authorities.empty(); }

  // Errors: InvalidArgument: only some are given. NotFound, PermissionDenied: one of them cannot
  //   be read; named.
  absl::Status Validate() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TLS_FILES_H_
