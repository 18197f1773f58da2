#include "common/base/log.h"

#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class LogLines : public testing::Test {
 protected:
  ~LogLines() override {
    SetLogFields({});
    SetUpLog("", LogLevel::kInfo);
  }
};

TEST_F(LogLines, AreForPeopleUnlessAskedOtherwise) {
  SetUpLog("w0", LogLevel::kInfo);
  CaptureStderr();
  LogInfo("step ", 3);
  EXPECT_THAT(GetCapturedStderr(), testing::MatchesRegex("2.*T.* I w0: step 3\n"));
}

TEST_F(LogLines, AreJsonWhateverTheTextHolds) {
  SetUpLog("w0", LogLevel::kInfo, LogFormat::kJson);
  const std::string text = "a \"quote\",\na second line, a \\, {} %v and \xff";
  CaptureStderr();
  LogWarning(text);
  const std::string written = GetCapturedStderr();
  ASSERT_EQ(written.find('\n'), written.size() - 1);
  const nlohmann::json line = nlohmann::json::parse(written);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["process"], "w0");
  EXPECT_EQ(line["message"], text.substr(0, text.size() - 1) + "\uFFFD");
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, line["time"].get<std::string>(), &time, &error))
      << error;
  EXPECT_FALSE(line.contains("job") || line.contains("epoch") || line.contains("rank"));
}

TEST_F(LogLines, HaveTheFieldsOfTheProcessUnlessTheySayOtherwise) {
  SetUpLog("w0", LogLevel::kInfo, LogFormat::kJson);
  SetLogFields({.job = "mnist", .epoch = 4, .rank = 0});
  CaptureStderr();
  LogInfo("of the process");
  nlohmann::json line = nlohmann::json::parse(GetCapturedStderr());
  EXPECT_EQ(line["job"], "mnist");
  EXPECT_EQ(line["epoch"], 4);
  EXPECT_EQ(line["rank"], 0);
  CaptureStderr();
  Log(LogLevel::kInfo, "of another job", {.job = "other"});
  line = nlohmann::json::parse(GetCapturedStderr());
  EXPECT_EQ(line["job"], "other");
  EXPECT_FALSE(line.contains("epoch"));
}

TEST_F(LogLines, BelowTheLeastLevelAreNotWritten) {
  SetUpLog("w0", LogLevel::kWarning, LogFormat::kJson);
  CaptureStderr();
  LogInfo("unimportant");
  LogError("important");
  const std::string written = GetCapturedStderr();
  EXPECT_THAT(written, HasSubstr("important"));
  EXPECT_EQ(written.find("unimportant"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
