// Runs the binary against a server in this process: output and exit codes.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Lockstepctl : public RpcFixture {
 protected:
  // `arguments` go through a shell.
  Outcome Run(const std::string& arguments, const std::string& coordinator = "") {
    static std::atomic<int> runs = 0;
    const std::string base = absl::StrCat(testing::TempDir(), "/run", getpid(), "-", ++runs);
    const std::string command = absl::StrCat(
        "LOCKSTEP_COORDINATOR=", coordinator.empty() ? server_->address() : coordinator,
        " USER=ada client/ctl/lockstepctl ", arguments, " >", base, ".out 2>", base, ".err");
    const int status = std::system(command.c_str());
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .out = ReadFile(base + ".out"),
            .err = ReadFile(base + ".err")};
  }
};

TEST_F(Lockstepctl, MakesListsShowsAndDeletesAJob) {
  EXPECT_EQ(Run("job create mnist --min-workers 2 --lease 3.5").code, 0);
  const Outcome list = Run("job list");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, AllOf(StartsWith("NAME   STATE"), HasSubstr("\nmnist  waiting")));
  const auto json = nlohmann::json::parse(Run("job status mnist --json").out)["job"];
  EXPECT_EQ(json["spec"]["min_workers"], 2);
  EXPECT_EQ(json["spec"]["lease"], "3.500s");
  EXPECT_THAT(Run("job watch mnist --once").out, HasSubstr("waiting  epoch 0  step 0"));
  EXPECT_EQ(Run("job delete mnist --json").out, "{}\n");
  const Outcome gone = Run("job status mnist");
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.err, StartsWith("lockstepctl: NOT_FOUND: "));
}

TEST_F(Lockstepctl, TakesTimesWithUnitsOrInSeconds) {
  EXPECT_EQ(Run("--timeout 10s job create a --join-window 500ms --lease 2m --ready-timeout 7").code,
            0);
  const auto status = nlohmann::json::parse(Run("job status a --json --timeout 1m").out);
  const auto& spec = status["job"]["spec"];
  EXPECT_EQ(spec["join_window"], "0.500s");
  EXPECT_EQ(spec["lease"], "120s");
  EXPECT_EQ(spec["ready_timeout"], "7s");
  const Outcome refused = Run("job create b --lease soon");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--lease"), HasSubstr("'soon'")));
  EXPECT_EQ(Run("--timeout 0s job list").code, 2);
}

TEST_F(Lockstepctl, NamesTheFieldThatIsRefused) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const Outcome refused = Run("policy set mnist --every-steps -3");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("every_steps: is -3")));
}

TEST_F(Lockstepctl, EndsWithTwoOnWrongUsage) {
  EXPECT_EQ(Run("").code, 2);
  EXPECT_EQ(Run("job").code, 2);
  EXPECT_EQ(Run("job create").code, 2);
  EXPECT_EQ(Run("policy set mnist").code, 2);
  EXPECT_EQ(Run("--timeout -1 job list").code, 2);
  EXPECT_EQ(Run("--help").code, 0);
}

TEST_F(Lockstepctl, EndsWithThreeWhenTheCoordinatorCannotBeReached) {
  // Nothing listens on this port: it is privileged and unassigned.
  const Outcome unreachable = Run("job list", "127.0.0.1:1");
  EXPECT_EQ(unreachable.code, 3);
  EXPECT_THAT(unreachable.err, HasSubstr("cannot reach the coordinator at 127.0.0.1:1"));
}

TEST_F(Lockstepctl, ChangesOnlyWhatThePolicyFlagsName) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  EXPECT_EQ(Run("policy set mnist --ignore 'bn1.*' --every-steps 5").code, 0);
  EXPECT_EQ(Run("policy set mnist --no-at-start --reason drift").code, 0);
  const auto revision = nlohmann::json::parse(Run("policy get mnist --json").out);
  EXPECT_EQ(revision["revision"], "3");
  EXPECT_EQ(revision["author"], "ada");
  EXPECT_EQ(revision["reason"], "drift");
  EXPECT_EQ(revision["policy"]["ignore_list"][0], "bn1.*");
  EXPECT_EQ(revision["policy"]["schedule"]["every_steps"], "5");
  EXPECT_EQ(revision["policy"]["schedule"]["at_start"], false);
  EXPECT_THAT(Run("policy history mnist").out,
              AllOf(HasSubstr("REVISION  STATE"), HasSubstr("drift"), HasSubstr("ignore bn1.*")));
}

TEST_F(Lockstepctl, RefusesAStaleEtagAndKeepsThePolicy) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const Outcome stale = Run("policy set mnist --no-broadcast-buffers --etag stale");
  EXPECT_EQ(stale.code, 1);
  EXPECT_THAT(stale.err, StartsWith("lockstepctl: ABORTED: "));
  EXPECT_EQ(Run("policy set mnist --no-broadcast-buffers --validate-only").code, 0);
  EXPECT_EQ(nlohmann::json::parse(Run("policy get mnist --json").out)["revision"], "1");
}

TEST_F(Lockstepctl, TakesAPolicyFromJsonAndRefusesUnknownFields) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const std::string path = testing::TempDir() + "/policy.json";
  std::ofstream(path) << R"({"ignore_list": ["cache"], "schedule": {"every_steps": 9}})";
  EXPECT_EQ(Run("policy set mnist --from-json " + path).code, 0);
  EXPECT_THAT(Run("policy get mnist").out, HasSubstr("every 9 steps"));
  std::ofstream(path) << R"({"ignore": ["cache"]})";
  const Outcome refused = Run("policy set mnist --from-json " + path);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT"));
}

TEST_F(Lockstepctl, EndsWithFourWhenAWaitTimesOut) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  const Outcome late = Run("policy set mnist --no-broadcast-buffers --wait --timeout 0.5");
  EXPECT_EQ(late.code, 4);
  EXPECT_THAT(late.err, AllOf(HasSubstr("waiting for the job to run"),
                              HasSubstr("lockstepctl: DEADLINE_EXCEEDED: ")));
}

TEST_F(Lockstepctl, WaitsForWorkersByNameAndTellsTheStep) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  auto waiting = std::async(std::launch::async, [this] {
    return Run("policy set mnist --no-broadcast-buffers --wait --timeout 20");
  });
  v1::AttendResponse heard;
  while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
  ASSERT_TRUE(worker.Apply(1, 41));
  const Outcome done = waiting.get();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "revision 2 took effect after step 41\n");

  auto syncing = std::async(std::launch::async, [this] {
    return Run("sync mnist --parameters --root w0 --wait --timeout 20");
  });
  heard.Clear();
  while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
  EXPECT_TRUE(heard.new_entries().entries(0).sync_once().parameters());
  EXPECT_EQ(heard.new_entries().entries(0).sync_once().root().worker(), "w0");
  ASSERT_TRUE(worker.Apply(2, 42));
  EXPECT_EQ(syncing.get().code, 0);
  EXPECT_THAT(Run("workers mnist").out, HasSubstr("w0"));
  EXPECT_THAT(Run("plan mnist").out, HasSubstr("of 1 parameters"));
}

}  // namespace
}  // namespace lockstep
