#include "security/authentication.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

constexpr absl::string_view kScheme = "bearer ";

}  // namespace

absl::StatusOr<Caller> Authenticate(const Shown& shown, TokenFile* tokens) {
  if (shown.authorization.has_value()) {
    if (tokens == nullptr) {
      return absl::UnauthenticatedError(
          "this coordinator knows no tokens (--tokens); show a certificate instead");
    }
    if (!absl::StartsWithIgnoreCase(*shown.authorization, kScheme)) {
      return absl::UnauthenticatedError("the authorization is none of the kind 'Bearer TOKEN'");
    }
    return tokens->Find(absl::StripAsciiWhitespace(
        absl::string_view(*shown.authorization).substr(kScheme.size())));
  }
  if (!shown.has_certificate) {
    return absl::UnauthenticatedError("the caller shows neither a certificate nor a token");
  }
  return CallerOfCertificate(shown.common_name, shown.dns_names);
}

}  // namespace lockstep
