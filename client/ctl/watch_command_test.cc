// job watch, events and colours, on terminals and elsewhere.
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/ctl/ctl_fixture.h"
#include "client/ctl/pseudo_terminal.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kTerm[] = "TERM=xterm NO_COLOR=";

std::vector<nlohmann::json> Objects(const std::string& lines) {
  std::vector<nlohmann::json> objects;
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    objects.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  return objects;
}

std::vector<std::string> Kinds(const std::string& lines) {
  std::vector<std::string> kinds;
  for (const auto& event : Objects(lines)) kinds.push_back(event.value("kind", ""));
  return kinds;
}

class WatchCommand : public Lockstepctl {
 protected:
  WatchCommand() { EXPECT_THAT(CreateJob("mnist"), IsOk()); }

  // Runs the command, whose --timeout bounds all waits, and calls `act(wait)` when it has
  // printed something; `wait(text)` returns when it has printed the text. What it printed.
  template <typename Act>
  std::string RunWhile(const std::string& arguments, const Act& act) {
    const std::string out = WriteFile("watched", "");
    auto running = std::async(std::launch::async, [&] { return Run(arguments, "", kTerm, out); });
    const auto wait = [&](const std::string& text) {
      while (ReadFile(out).find(text) == std::string::npos &&
             running.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
      }
    };
    wait("\n");
    act(wait);
    const Outcome outcome = running.get();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ReadFile(out);
  }
};

TEST_F(WatchCommand, RedrawsATableInPlaceOnATerminal) {
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  PseudoTerminal terminal;
  const Outcome watched = Run("job watch mnist --timeout 300ms", "", kTerm, terminal.path());
  EXPECT_EQ(watched.code, 4);
  const std::string printed = terminal.Printed();
  EXPECT_THAT(printed, StartsWith("\x1b[?7lmnist  \x1b[32mrunning\x1b[0m  epoch 1  step 0"));
  EXPECT_THAT(printed, HasSubstr("RANK  NAME  STATE     PHASE    STEP  STEPS/S  LOG APPLIED\r\n"
                                 "   0  w0    \x1b[32mtraining\x1b[0m  joining     0        -"
                                 "            0\r\n\x1b[?7h"));
}

TEST_F(WatchCommand, GoesBackToTheTopForEachFrame) {
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  PseudoTerminal terminal;
  std::string printed;
  auto watching = std::async(std::launch::async, [&] {
    return Run("job watch mnist --timeout 20s --color never", "", kTerm, terminal.path());
  });
  const auto wait = [&](const std::string& text) {
    while (printed.find(text) == std::string::npos &&
           watching.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
      printed += terminal.Printed();
    }
  };
  wait("w0");
  // The end of the job ends the watch.
  v1::AttendRequest leave;
  leave.mutable_leave()->set_epoch(worker.epoch());
  ASSERT_TRUE(worker.Write(leave));
  EXPECT_THAT(worker.Finish(), IsOk());
  wait("waiting");
  EXPECT_EQ(Run("job delete mnist").code, 0);
  EXPECT_EQ(watching.get().code, 1);
  printed += terminal.Printed();
  EXPECT_THAT(printed, HasSubstr("\x1b[?7l\x1b[4A\r\x1b[Jmnist  waiting"));
}

TEST_F(WatchCommand, FitsATerminalOfFewRows) {
  RawWorker first(*membership_), second(*membership_);
  ASSERT_TRUE(first.Write(RawWorker::Hello("mnist", "w0")));
  ASSERT_TRUE(second.Write(RawWorker::Hello("mnist", "w1")));
  v1::AttendResponse heard;
  ASSERT_TRUE(first.Read(&heard));
  ASSERT_TRUE(second.Read(&heard));
  PseudoTerminal terminal;
  terminal.SetRows(5);
  EXPECT_EQ(Run("job watch mnist --timeout 200ms", "", kTerm, terminal.path()).code, 4);
  EXPECT_THAT(terminal.Printed(), HasSubstr("\r\nand 2 more\r\n"));
}

TEST_F(WatchCommand, PrintsLinesWhereThereIsNoTerminal) {
  const Outcome watched = Run("job watch mnist --timeout 200ms", "", kTerm);
  EXPECT_EQ(watched.code, 4);
  EXPECT_THAT(watched.out, StartsWith("waiting  epoch 0  step 0  policy 1 (effective)"));
  EXPECT_THAT(watched.out, Not(HasSubstr("\x1b")));
  PseudoTerminal terminal;
  EXPECT_EQ(Run("job watch mnist --timeout 200ms --json", "", kTerm, terminal.path()).code, 4);
  EXPECT_EQ(Objects(terminal.Printed()).at(0)["job"]["spec"]["name"], "mnist");
  EXPECT_EQ(Run("job watch mnist --timeout 200ms", "", "TERM=dumb", terminal.path()).code, 4);
  EXPECT_THAT(terminal.Printed(), StartsWith("waiting  epoch 0"));
}

TEST_F(WatchCommand, ColoursOnlyWhereItIsWanted) {
  const std::string colored = "\x1b[33mwaiting\x1b[0m";
  const auto printed = [&](const std::string& flags, const std::string& environment) {
    PseudoTerminal terminal;
    EXPECT_EQ(Run("job list " + flags, "", environment, terminal.path()).code, 0);
    return terminal.Printed();
  };
  EXPECT_THAT(printed("", kTerm), HasSubstr(colored));
  EXPECT_THAT(printed("", "TERM=xterm NO_COLOR=1"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(printed("", "TERM=dumb NO_COLOR="), Not(HasSubstr("\x1b")));
  EXPECT_THAT(printed("--color never", kTerm), Not(HasSubstr("\x1b")));
  EXPECT_THAT(printed("--color always", "TERM=dumb NO_COLOR=1"), HasSubstr(colored));
  EXPECT_THAT(Run("job list", "", kTerm).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(Run("job list --color always", "", kTerm).out, HasSubstr(colored));
  EXPECT_THAT(Run("job list --json --color always", "", kTerm).out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(Run("job list --color blue").code, 2);
}

TEST_F(WatchCommand, EventsTellOfAWorkerThatComesAndFinishes) {
  const std::string events = RunWhile(
      "events mnist --json --timeout 20s",
      [&](const auto& wait) {
        RawWorker worker(*membership_);
        worker.Join("mnist", "w0");
        v1::AttendRequest leave;
        leave.mutable_leave()->set_epoch(worker.epoch());
        EXPECT_TRUE(worker.Write(leave));
        EXPECT_THAT(worker.Finish(), IsOk());
        wait("epoch-ended");
        EXPECT_EQ(Run("job delete mnist").code, 0);
      });
  const std::vector<std::string> kinds = Kinds(events);
  EXPECT_EQ(kinds.front(), "now");
  EXPECT_EQ(kinds.back(), "deleted");
  EXPECT_THAT(kinds, testing::Contains("epoch-ended")) << events;
}

TEST_F(WatchCommand, EventsTellOfADrain) {
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  const std::string events = RunWhile(
      "events mnist --json --timeout 20s --count 3",
      [&](const auto&) {
        EXPECT_EQ(Run("job drain mnist w0 --allow-waiting").code, 0);
        v1::AttendResponse heard;
        while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
        ASSERT_TRUE(worker.Apply(1, 44));
        v1::AttendRequest stopped;
        stopped.mutable_epoch_stopped()->set_epoch(worker.epoch());
        stopped.mutable_epoch_stopped()->set_step(44);
        ASSERT_TRUE(worker.Write(stopped));
      });
  EXPECT_THAT(Kinds(events), ElementsAre("now", "worker-drained", "epoch-ended", "job-state"));
  EXPECT_EQ(Objects(events).at(1)["worker"], "w0");
}

TEST_F(WatchCommand, EventsEndAfterSoManyOrInTime) {
  const std::string events = RunWhile(
      "events mnist --count 1 --timeout 20s",
      [&](const auto&) { EXPECT_EQ(Run("policy set mnist --ignore own --reason drift").code, 0); });
  EXPECT_THAT(events, AllOf(HasSubstr("Z  now               job mnist: waiting"),
                            HasSubstr("Z  policy-revised    policy revision 2, by ada, because: "
                                      "drift\n")));
  EXPECT_EQ(Run("events mnist --timeout 100ms").code, 4);
  EXPECT_EQ(Run("events mnist --count 0").code, 2);
  const Outcome unknown = Run("events other");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, StartsWith("lockstepctl: NOT_FOUND: "));
}

}  // namespace
}  // namespace lockstep
