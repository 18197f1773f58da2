#include "security/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// How soon a renewed certificate is used.
constexpr unsigned kRefreshSeconds = 5;

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(const TlsFiles& tls) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key, tls.certificate, tls.authorities, kRefreshSeconds);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const TlsFiles& tls) {
  LOCKSTEP_RETURN_IF_ERROR(tls.Validate());
  if (tls.empty()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(Watch(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(
    const TlsFiles& tls) {
  LOCKSTEP_RETURN_IF_ERROR(tls.Validate());
  if (tls.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace lockstep
