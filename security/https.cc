#include "security/https.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include <memory>
#include <string>

namespace lockstep {
namespace {

constexpr std::size_t kMaxNameBytes = 1024;

using Certificate = std::unique_ptr<gnutls_x509_crt_int, decltype(&gnutls_x509_crt_deinit)>;

bool IsTrusted(gnutls_session_t session) {
  gnutls_typed_vdata_st purpose = {};
  purpose.type = GNUTLS_DT_KEY_PURPOSE_OID;
  purpose.data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT));
  unsigned problems = 0;
  return gnutls_certificate_verify_peers(session, &purpose, 1, &problems) == GNUTLS_E_SUCCESS &&
         problems == 0;
}

Certificate PeerCertificate(gnutls_session_t session) {
  Certificate none(nullptr, &gnutls_x509_crt_deinit);
  unsigned count = 0;
  const gnutls_datum_t* const chain = gnutls_certificate_get_peers(session, &count);
  if (chain == nullptr || count == 0) return none;
  gnutls_x509_crt_t raw = nullptr;
  if (gnutls_x509_crt_init(&raw) != GNUTLS_E_SUCCESS) return none;
  Certificate certificate(raw, &gnutls_x509_crt_deinit);
  return gnutls_x509_crt_import(raw, chain, GNUTLS_X509_FMT_DER) == GNUTLS_E_SUCCESS
             ? std::move(certificate)
             : std::move(none);
}

}  // namespace

Shown ShownBy(gnutls_session_int* session) {
  Shown shown;
  const Certificate certificate = PeerCertificate(session);
  if (certificate == nullptr || !IsTrusted(session)) return shown;
  shown.has_certificate = true;
  char name[kMaxNameBytes];
  std::size_t bytes = sizeof(name);
  if (gnutls_x509_crt_get_dn_by_oid(certificate.get(), GNUTLS_OID_X520_COMMON_NAME, 0, 0, name,
                                    &bytes) == GNUTLS_E_SUCCESS) {
    shown.common_name.assign(name, bytes);
  }
  for (unsigned i = 0;; ++i) {
    bytes = sizeof(name);
    const int kind =
        gnutls_x509_crt_get_subject_alt_name(certificate.get(), i, name, &bytes, nullptr);
    if (kind == GNUTLS_E_SHORT_MEMORY_BUFFER) continue;
    if (kind < 0) break;
    if (kind == GNUTLS_SAN_DNSNAME) shown.dns_names.emplace_back(name, bytes);
  }
  return shown;
}

}  // namespace lockstep
