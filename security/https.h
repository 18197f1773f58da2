// ShownBy: what the peer of an HTTPS connection showed, by GnuTLS, which the HTTP library uses.
// Any thread, one for each connection.
#ifndef LOCKSTEP_SECURITY_HTTPS_H_
#define LOCKSTEP_SECURITY_HTTPS_H_

#include "security/authentication.h"

struct gnutls_session_int;

namespace lockstep {

// Without headers. A certificate that the server's authorities did not sign, is not valid now or is
// not for clients counts as none.
Shown ShownBy(gnutls_session_int* session);

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_HTTPS_H_
