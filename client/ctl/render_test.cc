#include "client/ctl/render.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

v1::WatchJobResponse Running(int workers, std::int64_t applied) {
  v1::WatchJobResponse state;
  state.mutable_job()->set_state(v1::Job::STATE_RUNNING);
  state.mutable_job()->set_applied_log_number(applied);
  for (int i = 0; i < workers; ++i) {
    v1::Worker* worker = state.add_workers();
    worker->set_name("w" + std::to_string(i));
    worker->set_rank(i);
    worker->set_applied_log_number(applied);
  }
  return state;
}

TEST(ProgressOf, NamesTheMembersThatAreMissing) {
  v1::WatchJobResponse state = Running(4, 1);
  for (int i : {0, 1, 3}) state.mutable_workers(i)->set_applied_log_number(2);
  EXPECT_EQ(ProgressOf(state, 2).waiting, "waiting for 1 of 4 workers: w2");
  EXPECT_TRUE(ProgressOf(state, 1).is_done);
}

TEST(ProgressOf, DoesNotCountWorkersThatAreNoMembers) {
  v1::WatchJobResponse state = Running(2, 1);
  state.mutable_workers(0)->set_rank(-1);
  EXPECT_EQ(ProgressOf(state, 2).waiting, "waiting for 1 of 1 workers: w1");
}

TEST(ProgressOf, SaysWhyAJobDoesNotRun) {
  v1::WatchJobResponse state;
  state.mutable_job()->set_state(v1::Job::STATE_WAITING);
  state.mutable_job()->set_detail("1 of 2 workers attend");
  EXPECT_EQ(ProgressOf(state, 1).waiting,
            "waiting for the job to run: 1 of 2 workers attend");
}

TEST(RenderShardPlan, TellsWhoKeepsACopyAndWhatReplicasCost) {
  v1::GetShardPlanResponse plan;
  plan.set_epoch(3);
  plan.set_flat_elements(48);
  plan.set_tensors(2);
  plan.set_digest("00ff");
  plan.set_optimizer_replicas(2);
  for (int rank = 0; rank < 2; ++rank) {
    v1::Shard& shard = *plan.add_shards();
    shard.set_rank(rank);
    shard.set_worker("w" + std::to_string(rank));
    shard.set_begin(rank * 32);
    shard.set_end(rank == 0 ? 32 : 48);
    shard.set_buddy("w" + std::to_string(1 - rank));
  }
  plan.add_replica_costs()->set_optimizer_replicas(1);
  plan.add_replica_costs()->set_optimizer_replicas(2);
  plan.mutable_replica_costs(0)->set_step_bytes(192);
  plan.mutable_replica_costs(1)->set_step_bytes(320);
  plan.mutable_replica_costs(1)->set_optimizer_bytes(448);
  EXPECT_EQ(RenderShardPlan(plan),
            "epoch 3: 48 elements of 2 parameters, digest 00ff\n"
            "RANK  WORKER  BEGIN  END  ELEMENTS  COPY KEPT BY\n"
            "   0  w0          0   32        32  w1\n"
            "   1  w1         32   48        16  w0\n"
            "\n"
            "on the rank that has the most, over a network:\n"
            "OPTIMIZER REPLICAS  OPTIMIZER BYTES  BYTES SENT IN A STEP\n"
            "                 1                -                   192\n"
            "                 2              448                   320  this job\n");
}

TEST(WatchLine, TellsStateStepPolicyAndTheLossIfReported) {
  v1::WatchJobResponse state = Running(2, 1);
  state.mutable_job()->set_epoch(3);
  state.mutable_job()->set_step(120);
  state.mutable_job()->mutable_policy()->set_revision(2);
  state.mutable_job()->mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_EFFECTIVE);
  EXPECT_EQ(WatchLine(state), "running  epoch 3  step 120  policy 2 (effective)  workers 2");
  (*state.mutable_workers(1)->mutable_metrics())["loss"] = 0.25;
  EXPECT_THAT(WatchLine(state), HasSubstr("  loss 0.25"));
}

TEST(RenderJson, KeepsFieldNamesAndPrintsZeroes) {
  v1::Job job;
  job.mutable_spec()->set_min_workers(2);
  const auto json = nlohmann::json::parse(RenderJson(job));
  EXPECT_EQ(json["spec"]["min_workers"], 2);
  EXPECT_EQ(json["step"], "0");
  EXPECT_THAT(RenderJson(job, JsonLayout::kOneLine).find('\n'),
              RenderJson(job, JsonLayout::kOneLine).size() - 1);
}

TEST(RenderRevision, ShowsRulesByIndexAndWhatHoldsForTheOthers) {
  v1::SyncPolicyRevision revision;
  v1::SyncRule& rule = *revision.mutable_policy()->add_rules();
  rule.set_pattern("**.count");
  rule.set_operation(v1::OPERATION_SUM);
  rule.mutable_schedule()->set_every_steps(10);
  revision.mutable_policy()->set_broadcast_parameters_every_steps(1000);
  revision.mutable_policy()->set_skip_unchanged(true);
  const std::string text = RenderRevision(revision);
  EXPECT_THAT(text, HasSubstr("rules[0]:    **.count sum at-start=on every-steps=10\n"
                              "others by:   broadcast\n"
                              "root:        the lowest rank\n"
                              "when:        at start and before every forward\n"));
  EXPECT_THAT(text, HasSubstr("no rank has changed"));
  EXPECT_THAT(text, HasSubstr("broadcast at start and broadcast every 1000 steps"));
}

TEST(RenderRevision, SaysOfAPolicyThatItDoesNotKnowWhyNot) {
  v1::SyncPolicyRevision revision;
  revision.set_author("ada");
  revision.mutable_policy()->set_operation(static_cast<v1::Operation>(99));
  EXPECT_THAT(RenderRevision(revision),
              AllOf(HasSubstr("policy:      not known to this lockstepctl: operation: is the"),
                    HasSubstr("author:      ada")));
  EXPECT_THAT(RenderHistory({revision}), HasSubstr("not known to this lockstepctl"));
}

TEST(RenderHistory, LeavesTheStepOpenWhileARevisionIsPending) {
  v1::SyncPolicyRevision revision;
  revision.set_revision(2);
  revision.set_state(v1::SyncPolicyRevision::STATE_PENDING);
  EXPECT_THAT(RenderHistory({revision}), HasSubstr("pending           -  "));
}

std::size_t LongestLine(const std::string& text) {
  std::size_t longest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    longest = std::max(longest, line.size());
  }
  return longest;
}

TEST(RenderHistory, FitsTheTextWidth) {
  v1::SyncPolicyRevision revision;
  revision.set_author("a-person-with-a-long-name@example.org");
  revision.set_reason("reproducible test accuracy for the whole of the team, and more words");
  for (int i = 0; i < 9; ++i) revision.mutable_policy()->add_allow_list("**.running_mean");
  const std::string text = RenderHistory({revision});
  EXPECT_LE(LongestLine(text), kTextWidth) << text;
  EXPECT_THAT(text, HasSubstr("because:"));
}

TEST(RenderJob, FitsTheTextWidth) {
  v1::Job job;
  job.mutable_spec()->set_name("mnist");
  for (int i = 0; i < 30; ++i) *job.mutable_detail() += "waits for 2 of 3 workers; ";
  EXPECT_LE(LongestLine(RenderJob(job)), kTextWidth);
  EXPECT_LE(LongestLine(RenderJobs({job})), kTextWidth);
}

TEST(RenderWorkers, FitsTheTextWidthWithMetricsThatCanBeRead) {
  v1::Worker worker;
  worker.set_name("worker-0");
  worker.set_state(v1::Worker::STATE_TRAINING);
  worker.set_phase("evaluating");
  worker.set_transport("gloo");
  worker.set_optimizer_bytes(123456789012);
  (*worker.mutable_metrics())["images_per_second"] = 43160;
  (*worker.mutable_metrics())["loss"] = 0.02836;
  (*worker.mutable_metrics())["synced_bytes"] = 81060000;
  const std::string text = RenderWorkers({worker});
  EXPECT_LE(LongestLine(text), kTextWidth) << text;
  EXPECT_THAT(text, HasSubstr("images_per_second=43160"));
}

TEST(RenderWorkers, ShowsWhatSyncsDidOfWorkersThatTell) {
  v1::Worker silent;
  silent.set_name("w0");
  EXPECT_THAT(RenderWorkers({silent}), Not(HasSubstr("TRANSFERS")));
  v1::Worker worker;
  worker.set_name("w1");
  worker.mutable_sync()->set_syncs(12);
  worker.mutable_sync()->set_transfers(24);
  worker.mutable_sync()->set_bytes(81060000);
  worker.mutable_sync()->set_skipped_bytes(77);
  worker.mutable_sync()->set_last_transfers(2);
  worker.mutable_sync()->set_last_bytes(6755);
  EXPECT_THAT(RenderWorkers({silent, worker}),
              HasSubstr("\n\n"
                        "SYNCS OF  COUNT  TRANSFERS     BYTES  SKIPPED BYTES  LAST TRANSFERS  LAST "
                        "BYTES\n"
                        "w1           12         24  81060000             77               2       "
                        " 6755\n"));
}

TEST(RenderWorkers, ShowsNoRankForWhoIsNoMember) {
  v1::Worker worker;
  worker.set_name("w0");
  worker.set_rank(-1);
  EXPECT_THAT(RenderWorkers({worker}), Not(HasSubstr("-1")));
}

}  // namespace
}  // namespace lockstep
