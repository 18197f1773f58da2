#include "common/base/files.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(Files, ReadWhatWasWritten) {
  const std::string path = PathOf("text");
  for (const std::string& text : {std::string("one\nline"), std::string("\0\xff", 2),
                                  std::string(), std::string(100'000, 'x')}) {
    LOCKSTEP_ASSERT_OK(WriteFile(path, text));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string read, ReadFile(path));
    EXPECT_EQ(read, text);
  }
}

TEST(Files, SayWhichOneAndWhy) {
  EXPECT_THAT(ReadFile(PathOf("missing")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
  EXPECT_THAT(WriteFile(PathOf("no/folder"), "text"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/folder")));
  EXPECT_FALSE(ReadFile(testing::TempDir()).ok()) << "a folder";
}

TEST(Files, AWriteThatFailsLeavesNothingBehind) {
  const std::string folder = PathOf("folder");
  std::filesystem::create_directories(folder + "/taken/by");
  EXPECT_FALSE(WriteFile(folder + "/taken", "text").ok()) << "a folder that is not empty";
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace lockstep
