#include "tools/process/child_process.h"

#include <signal.h>

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

TEST(ChildProcess, StopAsksFirstAndThenKills) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      auto polite, ChildProcess::Start(Shell("trap 'exit 7' TERM; while :; do sleep 0.01; done")));
  // Until the trap is set SIGTERM kills the shell: both ends are polite.
  const ChildExit asked = polite->Stop(absl::Seconds(10));
  EXPECT_TRUE(asked.code == 7 || asked.signal == SIGTERM) << asked.ToString();

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto child, ChildProcess::Start(Shell("exec sleep 60")));
  EXPECT_FALSE(child->Wait(absl::ZeroDuration()).has_value());
  child->Signal(SIGSTOP);  // a stopped process does not act on SIGTERM
  EXPECT_EQ(child->Stop(absl::Milliseconds(50)).signal, SIGKILL);
}

}  // namespace
}  // namespace lockstep
