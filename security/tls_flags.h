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
                  "PEM file of this program's certificate; with key and authorities: speak TLS")
      ->envname("LOCKSTEP_TLS_CERTIFICATE");
  app->add_option("--tls-key", tls->key, "PEM file of its private key")
      ->envname("LOCKSTEP_TLS_KEY");
  app->add_option("--tls-authorities", tls->authorities,
                  "PEM file of the authorities that must have signed " + whose + " certificate")
      ->envname("LOCKSTEP_TLS_AUTHORITIES");
}

// Of programs that call the coordinator.
inline void AddClientTlsFlags(CLI::App* app, TlsFiles* tls) {
  AddTlsFlags(app, tls, "the coordinator's");
  app->add_option("--token-file", tls->token,
                  "file of a bearer token, instead of a certificate; takes --tls-authorities")
      ->envname("LOCKSTEP_TOKEN_FILE");
}

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TLS_FLAGS_H_
