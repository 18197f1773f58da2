// Lists of tokens, and files of them.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/manual_clock.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/token_file.h"
#include "security/token_list.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromCivil(absl::CivilSecond(2027, 1, 1), absl::UTCTimeZone());

TEST(Sha256, IsThatOfTheStandard) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TokenList, FindsTheHolderOfAToken) {
  const absl::StatusOr<TokenList> list = TokenList::Parse(absl::StrCat(
      "# who may call\n\n", Sha256("secret"), "  alice  operator,viewer # the boss\n",
      Sha256("other"), "\tw0 worker job=a job=b worker=w0 expires=2027-01-01T00:00:01Z\n"));
  LOCKSTEP_ASSERT_OK(list);
  const absl::StatusOr<Caller> alice = list->Find("secret", kNow);
  LOCKSTEP_ASSERT_OK(alice);
  EXPECT_EQ(*alice, (Caller{.name = "alice", .roles = {Role::kViewer, Role::kOperator}}));
  const absl::StatusOr<Caller> bound = list->Find("other", kNow);
  LOCKSTEP_ASSERT_OK(bound);
  EXPECT_EQ(*bound, (Caller{.name = "w0",
                            .roles = {Role::kWorker},
                            .jobs = {"a", "b"},
                            .workers = {"w0"}}));
  EXPECT_THAT(list->Find("other", kNow + absl::Seconds(1)),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("w0"), HasSubstr("2027-01-01T00:00:01"))));
  for (const std::string& wrong : {std::string(), std::string("Secret"), Sha256("secret")}) {
    EXPECT_THAT(list->Find(wrong, kNow), StatusIs(absl::StatusCode::kUnauthenticated)) << wrong;
  }
}

TEST(TokenList, NamesTheLineThatIsWrong) {
  const std::string hash = Sha256("secret");
  for (const auto& [line, why] : {
           std::pair<std::string, std::string>{"secret alice operator", "SHA-256"},
           {hash, "SHA-256"},
           {hash + " alice", "roles"},
           {hash + " alice king", "'king'"},
           {hash + " alice operator,", "''"},
           {hash + " alice operator until=tomorrow", "until=tomorrow"},
           {hash + " alice operator job=", "job="},
           {hash + " alice operator expires=tomorrow", "tomorrow"},
           {absl::StrCat(hash, " ", std::string(201, 'a'), " operator"), "200 bytes"},
           {absl::StrCat(hash, " a operator\n", hash, " b viewer"), "line 3"},
       }) {
    EXPECT_THAT(TokenList::Parse("#\n" + line),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("line "), HasSubstr(why), Not(HasSubstr("secret")))))
        << line;
  }
}

TEST(TokenLine, IsReadAsItWasMeant) {
  const Caller caller = {.name = "w0",
                         .roles = {Role::kViewer, Role::kWorker},
                         .jobs = {"a", "b"},
                         .workers = {"w0"}};
  const auto line = TokenLine("secret", caller, kNow + absl::Seconds(1));
  LOCKSTEP_ASSERT_OK(line);
  const auto list = TokenList::Parse(*line);
  LOCKSTEP_ASSERT_OK(list);
  const auto found = list->Find("secret", kNow);
  LOCKSTEP_ASSERT_OK(found);
  EXPECT_EQ(*found, caller);
  EXPECT_FALSE(list->Find("secret", kNow + absl::Seconds(1)).ok());
  for (const char* name : {"", "two words", "a#b", "a\nb"}) {
    EXPECT_THAT(TokenLine("s", {.name = name, .roles = {Role::kViewer}}, absl::InfiniteFuture()),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << name;
  }
  EXPECT_THAT(TokenLine("s", {.name = "a"}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

class TokenFileTest : public testing::Test {
 protected:
  void Write(const std::string& text) { LOCKSTEP_ASSERT_OK(WriteFile(path_, text)); }

  const std::string path_ = testing::TempDir() + "/tokens";
  ManualClock clock_;
};

TEST_F(TokenFileTest, IsReadAgainWhenItChanges) {
  Write(Sha256("old") + " alice operator\n");
  const auto file = TokenFile::Open(path_, &clock_);
  LOCKSTEP_ASSERT_OK(file);
  LOCKSTEP_EXPECT_OK((*file)->Find("old"));
  Write(Sha256("new") + " alice operator\n");
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT((*file)->Find("old"), StatusIs(absl::StatusCode::kUnauthenticated));
  LOCKSTEP_EXPECT_OK((*file)->Find("new"));
}

TEST_F(TokenFileTest, WhatIsWrongChangesNothing) {
  EXPECT_THAT(TokenFile::Open("/no/such/file", &clock_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/file")));
  Write("rubbish");
  EXPECT_THAT(TokenFile::Open(path_, &clock_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path_)));
  Write(Sha256("good") + " alice operator\n");
  const auto file = TokenFile::Open(path_, &clock_);
  LOCKSTEP_ASSERT_OK(file);
  Write("rubbish");
  clock_.Advance(absl::Seconds(1));
  LOCKSTEP_EXPECT_OK((*file)->Find("good"));
  LOCKSTEP_EXPECT_OK((*file)->Find("good"));
}

}  // namespace
}  // namespace lockstep
