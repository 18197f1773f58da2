#include "security/tls_files.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

absl::Status CheckReadable(absl::string_view what, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("the ", what, ": ", text.status().message()));
  }
  if (!text->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " ", path, " is empty"));
}

absl::Status Require(absl::string_view what, const std::string& path) {
  if (!path.empty()) return CheckReadable(what, path);
  return absl::InvalidArgumentError(absl::StrCat(
      "TLS takes a certificate, its private key and the authorities that the other side's "
      "certificate must be signed by (a client with a token needs only those); there is no ",
      what));
}

}  // namespace

absl::Status TlsFiles::ValidateForServer() const {
  if (empty()) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(Require("certificate", certificate));
  LOCKSTEP_RETURN_IF_ERROR(Require("private key", key));
  return Require("file of authorities", authorities);
}

absl::Status TlsFiles::ValidateForClient() const {
  if (token.empty()) return ValidateForServer();
  LOCKSTEP_RETURN_IF_ERROR(CheckReadable("file with the token", token));
  if (!certificate.empty() || !key.empty()) return ValidateForServer();
  return Require("file of authorities", authorities);
}

}  // namespace lockstep
