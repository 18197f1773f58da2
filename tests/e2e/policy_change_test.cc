// Policies of a running job of four processes, changed again and again.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/e2e/e2e_cluster.h"

namespace lockstep {
namespace {

constexpr int kWorkers = 4;
constexpr int kChanges = 100;

class PolicyChange : public testing::TestWithParam<std::string> {};

TEST_P(PolicyChange, TakesEffectOfEachRevisionAfterOneStepOnAllRanks) {
  E2eCluster cluster;
  cluster.CreateJob(cluster.SpecFor("changing", kWorkers));
  for (int i = 0; i < kWorkers; ++i) {
    cluster.StartWorker(i, "changing", {"--transport", GetParam(), "--epochs", "100",
                                        "--drift-every", "0"});
  }
  cluster.AwaitJob("changing", "training", [](const v1::Job& job) { return job.step() > 0; });

  for (int i = 0; i < kChanges; ++i) {
    v1::UpdateSyncPolicyRequest request;
    request.set_job("changing");
    request.mutable_policy()->set_broadcast_buffers(i % 2 == 0);
    request.mutable_policy()->mutable_schedule()->set_every_forwards(i % 3);
    request.mutable_policy()->mutable_schedule()->set_every_steps(i % 5);
    request.mutable_policy()->mutable_root()->set_rank(i % kWorkers);
    LOCKSTEP_ASSERT_OK(cluster.client().UpdateSyncPolicy(request));
  }
  cluster.AwaitJob("changing", "under its last revision", [](const v1::Job& job) {
    return job.policy().revision() == kChanges + 1 &&
           job.policy().state() == v1::SyncPolicyRevision::STATE_EFFECTIVE;
  });

  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::vector<v1::SyncPolicyRevision> revisions,
      cluster.client().ListSyncPolicyRevisions("changing", kChanges + 1));
  ASSERT_EQ(revisions.size(), kChanges + 1);
  std::int64_t later = revisions.front().effective_step();
  for (const v1::SyncPolicyRevision& revision : revisions) {
    EXPECT_LE(revision.effective_step(), later) << "revision " << revision.revision();
    later = revision.effective_step();
    if (revision.revision() == 1) continue;
    EXPECT_EQ(revision.effective_step_by_worker_size(), kWorkers);
    for (const auto& [worker, step] : revision.effective_step_by_worker()) {
      EXPECT_EQ(step, revision.effective_step())
          << worker << " at revision " << revision.revision();
    }
  }
  EXPECT_EQ(cluster.GetJob("changing").state(), v1::Job::STATE_RUNNING);
}

INSTANTIATE_TEST_SUITE_P(Transports, PolicyChange, testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
