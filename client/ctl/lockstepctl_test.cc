// The output and exit codes of the commands, but policy edit.
#include <future>
#include <string>

#include "client/ctl/ctl_fixture.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

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
  const Outcome set = Run("policy set mnist --ignore 'bn1.*' --every-steps 5");
  EXPECT_EQ(set.code, 0);
  EXPECT_EQ(set.out, "revision 2 is pending\n");
  EXPECT_THAT(set.err, HasSubstr("note: every-forwards (1) and every-steps (5) are both on"));
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

TEST_F(Lockstepctl, TakesAPolicyFromTextOrJsonAndSaysWhereAFileIsWrong) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const std::string path = WriteFile("policy", R"({"schedule": {"every_steps": 9}})");
  EXPECT_EQ(Run("policy set mnist --from " + path).code, 0);
  EXPECT_THAT(Run("policy get mnist").out, HasSubstr("when:        at start and every 9 steps\n"));
  // A schedule flag keeps the defaults where the file has no schedule.
  EXPECT_EQ(Run("policy set mnist --from - --every-steps 7 <" +
                WriteFile("policy", "# mine\nignore_list: 'cache'\n"))
                .code,
            0);
  EXPECT_THAT(Run("policy get mnist").out,
              HasSubstr("when:        at start and before every forward and every 7 steps\n"));
  WriteFile("policy", "skip_unchanged: true\nignore: 'cache'\n");
  const Outcome refused = Run("policy set mnist --from " + path);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT: " + path + ":2:"));
  EXPECT_EQ(Run("job create other --policy " + WriteFile("policy", "skip_unchanged: true")).code,
            0);
  EXPECT_THAT(Run("policy get other").out, HasSubstr("no rank has changed"));
}

TEST_F(Lockstepctl, SetsRulesAndSaysWhenThereIsNothingToChange) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const std::string set = "policy set mnist --clear-rules --rule '**.running_* mean every-steps=3' "
                          "--rule '**.count sum root=w0' --operation max --check-parameters-every-"
                          "steps 50 --skip-unchanged --before-checkpoint";
  EXPECT_EQ(Run(set).out, "revision 2 is pending\n");
  EXPECT_EQ(Run(set).out, "nothing to change: revision 2 is the same\n");
  EXPECT_THAT(Run("policy get mnist").out,
              AllOf(HasSubstr("rules[0]:    **.running_* mean at-start=on every-steps=3\n"),
                    HasSubstr("rules[1]:    **.count sum root=w0\n"),
                    HasSubstr("others by:   max\n")));
  const Outcome wrong = Run("policy set mnist --rule '**.count median'");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("the rule '**.count median': 'median' is no operation"));
  EXPECT_EQ(nlohmann::json::parse(Run("policy get mnist --json").out)["revision"], "2");
}

TEST_F(Lockstepctl, ShowsAnOldRevisionAlsoAsTextThatCanBeSetAgain) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  EXPECT_EQ(Run("policy set mnist --ignore 'bn1.*'").code, 0);
  EXPECT_EQ(Run("policy set mnist --clear-ignore").code, 0);
  EXPECT_THAT(Run("policy get mnist --revision 2").out, HasSubstr("ignore:      bn1.*\n"));
  EXPECT_EQ(Run("policy get mnist --revision 9").code, 1);
  EXPECT_EQ(Run("policy get mnist --textproto --json").code, 2);
  const std::string path = WriteFile("text", Run("policy get mnist --revision 2 --textproto").out);
  EXPECT_EQ(Run("policy set mnist --from " + path).out, "revision 4 is pending\n");
  EXPECT_THAT(Run("policy diff mnist --from 2 --to 4").out, HasSubstr("no difference"));
}

TEST_F(Lockstepctl, RollsBackByANewRevision) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  const Outcome first = Run("policy rollback mnist");
  EXPECT_EQ(first.code, 1);
  EXPECT_THAT(first.err, HasSubstr("there is none before it"));
  EXPECT_EQ(Run("policy set mnist --ignore a").code, 0);
  EXPECT_EQ(Run("policy set mnist --ignore b").code, 0);
  EXPECT_EQ(Run("policy rollback mnist --validate-only").out, "valid; nothing was changed\n");
  EXPECT_EQ(Run("policy rollback mnist").out, "revision 4 is pending\n");
  const auto revision = nlohmann::json::parse(Run("policy get mnist --json").out);
  EXPECT_EQ(revision["policy"]["ignore_list"], nlohmann::json::array({"a"}));
  EXPECT_EQ(revision["reason"], "rollback to revision 2");
  EXPECT_EQ(revision["author"], "ada");
  EXPECT_EQ(Run("policy rollback mnist 1 --reason calm").out, "revision 5 is pending\n");
  EXPECT_EQ(nlohmann::json::parse(Run("policy history mnist --json").out)["revisions"][0]["reason"],
            "calm");
  EXPECT_EQ(Run("policy rollback mnist 5").out, "nothing to change: revision 5 is the same\n");
  EXPECT_EQ(Run("policy rollback mnist 6").code, 1);
}

TEST_F(Lockstepctl, ShowsWhatDiffersWithoutAModelToo) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  EXPECT_EQ(Run("policy diff mnist").code, 1);
  EXPECT_EQ(Run("policy set mnist --ignore a --every-steps 100").code, 0);
  const std::string expected = "+ ignore_list: a\n"
                               "~ schedule.every_steps: 0 -> 100\n"
                               "no worker has told the model yet: buffers were not compared\n";
  EXPECT_EQ(Run("policy diff mnist").out, "revision 1 -> revision 2\n" + expected);
  const std::string path = WriteFile("policy", "");
  EXPECT_EQ(Run("policy diff mnist --file " + path).out,
            "revision 2 -> " + path + "\n"
            "- ignore_list: a\n~ schedule.every_steps: 100 -> 0\n"
            "no worker has told the model yet: buffers were not compared\n");
  EXPECT_EQ(Run("policy diff mnist --file x --from 1").code, 2);
  const Outcome unknown = Run("policy preview mnist");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(Lockstepctl, PreviewsAndComparesTheBuffersOfAModel) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  EXPECT_THAT(Run("policy preview mnist").out,
              AllOf(HasSubstr("bn1.running_mean  float32[10]  broadcast     "),
                    HasSubstr("(w0)"), HasSubstr("1 of 1 buffers are synchronised"),
                    HasSubstr("the policy\n")));
  const std::string edit = "--rule 'bn1.* mean every-steps=5'";
  EXPECT_THAT(Run("policy preview mnist " + edit).out,
              AllOf(HasSubstr("  mean  "), HasSubstr("rules[0]: bn1.*")));
  const std::string ignoring = WriteFile("policy", "ignore_list: '**'");
  EXPECT_THAT(Run("policy preview mnist --from " + ignoring).out, HasSubstr("  ignored  "));
  const auto json = nlohmann::json::parse(
      Run("policy preview mnist --json --synced-only --from " + ignoring).out);
  EXPECT_EQ(json["buffers"].size(), 0u);
  EXPECT_EQ(json["total_buffers"], "1");
  // Nothing of that changed the policy.
  EXPECT_EQ(nlohmann::json::parse(Run("policy get mnist --json").out)["revision"], "1");

  EXPECT_THAT(Run("policy preview mnist --no-broadcast-buffers").out,
              ContainsRegex("running_mean .* at start +40 "));

  EXPECT_EQ(Run("policy set mnist " + edit).code, 0);
  EXPECT_THAT(Run("policy diff mnist").out,
              AllOf(HasSubstr("+ rules[0]: bn1.* mean at-start=on every-steps=5\n"),
                    HasSubstr("1 buffer is treated differently:\n"
                              "  bn1.running_mean: broadcast, ")));
  EXPECT_THAT(Run("policy preview mnist --revision 1").out, HasSubstr("  broadcast  "));
  EXPECT_EQ(nlohmann::json::parse(Run("policy diff mnist --json").out)["buffers"][0]["name"],
            "bn1.running_mean");
}

TEST_F(Lockstepctl, SaysWhatARevisionIs) {
  for (const std::string wrong : {"0", "x", "9223372036854775808"}) {
    const Outcome refused = Run("policy rollback mnist " + wrong);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("'" + wrong + "' is no revision; they count from 1\n"));
  }
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

  auto checkpoint = std::async(std::launch::async,
                               [this] { return Run("job checkpoint mnist --wait --timeout 20"); });
  heard.Clear();
  while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
  EXPECT_TRUE(heard.new_entries().entries(0).has_checkpoint_once());
  ASSERT_TRUE(worker.Apply(3, 43));
  EXPECT_EQ(checkpoint.get().out,
            "checkpoint is entry 3 of the control log and took effect on all workers\n");

  const Outcome refused = Run("job drain mnist w0");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("0 of at least 1 workers are left"));
  auto drain = std::async(std::launch::async, [this] {
    return Run("job drain mnist w0 --allow-waiting --wait --timeout 20");
  });
  heard.Clear();
  while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
  EXPECT_EQ(heard.new_entries().entries(0).regroup().drain(), "w0");
  ASSERT_TRUE(worker.Apply(4, 44));
  v1::AttendRequest stopped;
  stopped.mutable_epoch_stopped()->set_epoch(worker.epoch());
  stopped.mutable_epoch_stopped()->set_step(44);
  ASSERT_TRUE(worker.Write(stopped));
  EXPECT_EQ(drain.get().out,
            "drain of w0 is entry 4 of the control log; it takes no more part\n");
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(Lockstepctl, DoesNotWaitForADrainLongerThanItIsTold) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  const Outcome late = Run("job drain mnist w0 --allow-waiting --wait --timeout 300ms");
  EXPECT_EQ(late.code, 4);
  EXPECT_THAT(late.err, HasSubstr("worker 'w0' of job 'mnist' was not drained within 300ms"));
}

TEST_F(Lockstepctl, MakesAJobThatMayLoseAWorker) {
  EXPECT_EQ(Run("job create a --min-workers 2 --optimizer-replicas 2 --stall-timeout 30s").code, 0);
  const auto spec = nlohmann::json::parse(Run("job status a --json").out)["job"]["spec"];
  EXPECT_EQ(spec["optimizer_replicas"], 2);
  EXPECT_EQ(spec["stall_timeout"], "30s");
  EXPECT_THAT(Run("job status a").out, HasSubstr("state of each shard on 2 workers"));
  EXPECT_EQ(Run("job create b --stall-timeout 0s").code, 0);
  const auto never = nlohmann::json::parse(Run("job status b --json").out)["job"]["spec"];
  EXPECT_EQ(never["stall_timeout"], "0s");
  EXPECT_EQ(never["optimizer_replicas"], 1);
  EXPECT_THAT(Run("job create c --optimizer-replicas 3").err,
              HasSubstr("optimizer_replicas is 3; it must be between 1 and 2"));
}

}  // namespace
}  // namespace lockstep
