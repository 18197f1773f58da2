// lockstepctl token new.
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/ctl/ctl_fixture.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/token_list.h"

namespace lockstep {
namespace {

class TokenCommand : public Lockstepctl {
 protected:
  const std::string path_ = testing::TempDir() + "/token";
};

TEST_F(TokenCommand, MakesATokenThatItsLineKnows) {
  const Outcome made =
      Run(absl::StrCat("token new w0 --role worker --role viewer --only-job mnist "
                           "--only-worker w0 --expires-in 1h --out ",
                           path_));
  ASSERT_EQ(made.code, 0) << made.err;
  const auto list = TokenList::Parse(made.out);
  LOCKSTEP_ASSERT_OK(list);
  const std::string token = ReadFile(path_);
  const std::string text(absl::StripSuffix(token, "\n"));
  EXPECT_GE(text.size(), 43) << "256 bits";
  const auto caller = list->Find(text, absl::Now());
  LOCKSTEP_ASSERT_OK(caller);
  EXPECT_EQ(*caller, (Caller{.name = "w0",
                             .roles = {Role::kViewer, Role::kWorker},
                             .jobs = {"mnist"},
                             .workers = {"w0"}}));
  EXPECT_FALSE(list->Find(text, absl::Now() + absl::Hours(2)).ok());
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600);
}

TEST_F(TokenCommand, MakesAnotherOneEachTime) {
  const std::string command = absl::StrCat("token new a --role viewer --out ", path_);
  EXPECT_NE(Run(command).out, Run(command).out);
}

TEST_F(TokenCommand, RefusesWhatTheListCouldNotSay) {
  for (const char* arguments : {"a --role king", "a", "--role viewer", "'a b' --role viewer"}) {
    EXPECT_EQ(Run(absl::StrCat("token new ", arguments, " --out ", path_)).code, 2)
        << arguments;
  }
}

}  // namespace
}  // namespace lockstep
