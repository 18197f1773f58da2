#include "security/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// How soon a renewed certificate is used.
constexpr unsigned kRefreshSeconds = 5;

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const TlsFiles& tls) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key, tls.certificate, tls.authorities, kRefreshSeconds);
}

class TokenOfFile final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenOfFile(std::string path) : path_(std::move(path)) {}

  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<std::string, std::string>* metadata) override {
    const absl::StatusOr<std::string> text = ReadFile(path_);
    if (!text.ok()) {
      return {grpc::StatusCode::UNAUTHENTICATED,
              absl::StrCat("the token: ", text.status().message())};
    }
    metadata->emplace("authorization", absl::StrCat("Bearer ", absl::StripAsciiWhitespace(*text)));
    return grpc::Status::OK;
  }

 private:
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(
    const TlsFiles& tls, bool may_lack_certificate) {
  LOCKSTEP_RETURN_IF_ERROR(tls.ValidateForServer());
  if (tls.empty()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(Watch(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(may_lack_certificate
                                    ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(
    const TlsFiles& tls) {
  LOCKSTEP_RETURN_IF_ERROR(tls.ValidateForClient());
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(tls));
  options.watch_root_certs();
  if (!tls.certificate.empty()) options.watch_identity_key_cert_pairs();
  std::shared_ptr<grpc::ChannelCredentials> credentials =
      grpc::experimental::TlsCredentials(options);
  if (tls.token.empty()) return credentials;
  return grpc::CompositeChannelCredentials(
      credentials, grpc::MetadataCredentialsFromPlugin(std::make_unique<TokenOfFile>(tls.token)));
}

}  // namespace lockstep
