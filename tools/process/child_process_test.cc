#include "tools/process/child_process.h"

#include <signal.h>

#include <fstream>
#include <memory>
#include <string>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

ChildOptions Shell(const std::string& script) {
  return {.program = "/bin/sh", .arguments = {"-c", script}};
}

TEST(RunProgram, GivesOutputAndExitCode) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const RunResult result, RunProgram(Shell("echo out; echo err >&2; exit 3"), absl::Seconds(10)));
  EXPECT_EQ(result.exit.code, 3);
  EXPECT_FALSE(result.exit.ok());
  EXPECT_EQ(result.output, "out\nerr\n");
}

TEST(RunProgram, KillsWhatTakesTooLong) {
  EXPECT_THAT(RunProgram(Shell("echo begun; exec sleep 60"), absl::Milliseconds(200)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, testing::HasSubstr("begun")));
}

TEST(RunProgram, SaysThatAProgramIsMissing) {
  EXPECT_THAT(RunProgram({.program = "/nowhere/program"}, absl::Seconds(1)),
              StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("/nowhere/program")));
}

TEST(RunProgram, AddsToTheEnvironment) {
  ChildOptions options = Shell("echo $COLOUR");
  options.environment["COLOUR"] = "blue";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(options, absl::Seconds(10)));
  EXPECT_EQ(result.output, "blue\n");
}

// A shell that has set its traps and said so.
std::unique_ptr<ChildProcess> StartReady(const std::string& script) {
  ChildOptions options = Shell(script);
  options.output_file = testing::TempDir() + "/output";
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options);
  EXPECT_THAT(child, IsOk());
  std::string said;
  while (said != "ready" && !(*child)->Wait(absl::Milliseconds(1))) {
    std::getline(std::ifstream(options.output_file), said);
  }
  return *std::move(child);
}

TEST(ChildProcess, StopAsksFirst) {
  const auto child = StartReady("trap 'exit 7' TERM; echo ready; while :; do :; done");
  EXPECT_EQ(child->Stop(absl::Seconds(10)).code, 7);
}

TEST(ChildProcess, StopKillsWhatDoesNotAnswer) {
  const auto child = StartReady("trap '' TERM; echo ready; exec sleep 60");
  EXPECT_EQ(child->Stop(absl::Milliseconds(50)).signal, SIGKILL);
}

TEST(ChildProcess, WaitTellsThatItStillRuns) {
  const auto child = StartReady("echo ready; exec sleep 60");
  EXPECT_FALSE(child->Wait(absl::ZeroDuration()).has_value());
}

}  // namespace
}  // namespace lockstep
