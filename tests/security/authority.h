// Authority: certificates for a test, of an authority of its own (tools/dev_ca.sh), and tokens.
#ifndef LOCKSTEP_TESTS_SECURITY_AUTHORITY_H_
#define LOCKSTEP_TESTS_SECURITY_AUTHORITY_H_

#include <stdlib.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "security/tls_files.h"

namespace lockstep {

class Authority {
 public:
  Authority() {
    std::string folder = absl::StrCat(testing::TempDir(), "/authority-XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // The arguments of dev_ca.sh. `environment`: "DAYS=1".
  void Make(const std::string& arguments, const std::string& environment = "") const {
    const std::string command =
        absl::StrCat(environment, " tools/dev_ca.sh ", folder_, " ", arguments);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  // Of one that was made.
  TlsFiles Of(const std::string& name) const {
    return {.certificate = absl::StrCat(folder_, "/", name, ".pem"),
            .key = absl::StrCat(folder_, "/", name, ".key"),
            .authorities = folder_ + "/ca.pem"};
  }
  // A client that trusts this authority and has this token instead of a certificate.
  TlsFiles WithToken(const std::string& token) const {
    const std::string path = absl::StrCat(folder_, "/token-", ++tokens_);
    LOCKSTEP_EXPECT_OK(WriteFile(path, token));
    return {.authorities = folder_ + "/ca.pem", .token = path};
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  mutable int tokens_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_AUTHORITY_H_
