#include "security/tls_files.h"

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace lockstep {

absl::Status TlsFiles::Validate() const {
  if (empty()) return absl::OkStatus();
  struct File {
    const char* what;
    const std::string& path;
  };
  for (const File& file : {File{"certificate", certificate}, File{"private key", key},
                           File{"file of authorities", authorities}}) {
    if (file.path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "TLS takes a certificate, its private key and the authorities that the other side's "
          "certificate must be signed by; there is no ",
          file.what));
    }
    errno = 0;
    std::ifstream stream(file.path);
    if (stream.peek() == std::ifstream::traits_type::eof()) {
      const std::string what = absl::StrCat("cannot read the ", file.what, " ", file.path);
      if (errno == 0) return absl::InvalidArgumentError(absl::StrCat(what, ": it is empty"));
      return absl::ErrnoToStatus(errno, what);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
