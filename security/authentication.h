// Authentication: who makes a call, by what it shows. Thread-safe.
#ifndef LOCKSTEP_SECURITY_AUTHENTICATION_H_
#define LOCKSTEP_SECURITY_AUTHENTICATION_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "security/caller.h"
#include "security/token_file.h"

namespace lockstep {

// What came with a call over TLS.
struct Shown {
  std::optional<std::string> authorization;  // the header of that name
  // Of a certificate that was checked.
  bool has_certificate = false;
  std::string common_name;
  std::vector<std::string> dns_names;
};

// A bearer token goes before a certificate. `tokens`: null: none are known.
// Errors: Unauthenticated: neither was shown, or a token that is not good.
absl::StatusOr<Caller> Authenticate(const Shown& shown, TokenFile* tokens);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_AUTHENTICATION_H_
