#include "tests/golden/golden_scripts.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// The script as it would be if what it tests were right.
std::string Replay(const std::string& text, const RunCommand& run) {
  std::string out;
  std::vector<std::string> commands;
  bool in_output = false;
  for (const absl::string_view view : absl::StrSplit(text, '\n')) {
    const std::string line(view);
    if (in_output) {
      in_output = !line.empty();
      if (in_output) continue;
    }
    if (line == "----") {
      absl::StrAppend(&out, "----\n");
      for (const std::string& command : commands) absl::StrAppend(&out, run(command));
      commands.clear();
      in_output = true;
      continue;
    }
    absl::StrAppend(&out, line, "\n");
    if (!line.empty() && line[0] != '#') commands.push_back(line);
  }
  EXPECT_TRUE(commands.empty()) << "commands without ---- at the end: " << commands.front();
  return std::string(absl::StripTrailingAsciiWhitespace(out)) + "\n";
}

}  // namespace

void ExpectScriptsHold(const std::string& folder, const std::function<RunCommand()>& begin) {
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.insert(entry.path());
  }
  ASSERT_FALSE(paths.empty());
  const char* root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  for (const std::filesystem::path& path : paths) {
    SCOPED_TRACE(path);
    const absl::StatusOr<std::string> text = ReadFile(path);
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string replayed = Replay(*text, begin());
    if (std::getenv("REWRITE") != nullptr && root != nullptr) {
      const absl::Status written = WriteFile(std::filesystem::path(root) / path, replayed);
      EXPECT_TRUE(written.ok()) << written;
    } else {
      EXPECT_EQ(replayed, *text);
    }
  }
}

}  // namespace lockstep
