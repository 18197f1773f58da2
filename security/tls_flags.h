// The flags of programs that use TLS; also taken from the environment, so that an operator's shell
// names them once.
#ifndef LOCKSTEP_SECURITY_TLS_FLAGS_H_
#define LOCKSTEP_SECURITY_TLS_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "security/tls_files.h"

namespace lockstep {

// `whose`: certificates are checked, as "the coordinator's".
inline void AddTlsFlags(CLI::App* app, TlsFiles* tls, const std::string& whose) {
  app->add_option("--tls-certificate", tls->certificate,
                  "PEM file of this program's certificate; the three together: speak TLS")
      ->envname("LOCKSTEP_TLS_CERTIFICATE");
  app->add_option("--tls-key", tls->key, "PEM file of its private key")
      ->envname("LOCKSTEP_TLS_KEY");
  app->add_option("--tls-authorities", tls->authorities,
                  "PEM file of the authorities that must have signed " + whose + " certificate")
      ->envname("LOCKSTEP_TLS_AUTHORITIES");
}

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TLS_FLAGS_H_
