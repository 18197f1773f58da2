#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/hosts/document.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CommandBlocks, AreThoseOfAHostInTheirOrder) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto blocks,
      CommandBlocks("# Title\n```sh host=all\nA=1\n\n  b\n```\ntext\n```sh host=h\nc\n```\n"));
  EXPECT_THAT(blocks, ElementsAre(CommandBlock{"all", 3, "A=1\n\n  b\n"},
                                  CommandBlock{"h", 9, "c\n"}));
}

TEST(CommandBlocks, LeaveOutWhatIsForTheEyes) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto blocks,
      CommandBlocks("```\nplain\n```\n```sh\nls\n```\n```cpp\nint i;\n```\nsh host=h\n"));
  EXPECT_THAT(blocks, IsEmpty());
}

TEST(CommandBlocks, RefuseAFenceThatIsNotClosed) {
  EXPECT_THAT(CommandBlocks("text\n```sh host=h\nls\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 2")));
}

TEST(CommandBlocks, RefuseAMistypedHostRatherThanLeaveItOut) {
  for (const char* opening : {"sh hots=h", "sh host=", "sh host=a b"}) {
    EXPECT_THAT(CommandBlocks(absl::StrCat("```", opening, "\nls\n```\n")),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host=NAME")))
        << opening;
  }
}

}  // namespace
}  // namespace lockstep
