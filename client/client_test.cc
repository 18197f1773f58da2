#include "client/client.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::JobSpec Spec(const std::string& name) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_min_workers(1);
  return spec;
}

class ClientCalls : public RpcFixture {
 protected:
  ClientCalls() { client_ = *Client::Connect(server_->address()); }
  std::unique_ptr<Client> client_;
};

TEST_F(ClientCalls, MakeReadListAndDeleteJobs) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::Job made, client_->CreateJob(Spec("mnist")));
  EXPECT_EQ(made.spec().name(), "mnist");
  EXPECT_THAT(client_->GetJob("mnist"), IsOk());
  EXPECT_EQ(client_->ListJobs()->size(), 1u);
  EXPECT_EQ(client_->ListWorkers("mnist")->size(), 0u);
  EXPECT_THAT(client_->DeleteJob("mnist"), IsOk());
  EXPECT_THAT(client_->GetJob("mnist"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientCalls, ListAllPages) {
  for (int i = 0; i < 120; ++i) {
    ASSERT_THAT(client_->CreateJob(Spec(absl::StrCat("job-", i))), IsOk());
  }
  EXPECT_EQ(client_->ListJobs()->size(), 120u);
}

TEST_F(ClientCalls, ListTheNewestRevisionsUpToALimit) {
  ASSERT_THAT(client_->CreateJob(Spec("mnist")), IsOk());
  v1::UpdateSyncPolicyRequest update;
  update.set_job("mnist");
  update.mutable_policy()->set_broadcast_buffers(false);
  for (int i = 0; i < 4; ++i) ASSERT_THAT(client_->UpdateSyncPolicy(update), IsOk());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto revisions,
                                client_->ListSyncPolicyRevisions("mnist", 2));
  ASSERT_EQ(revisions.size(), 2u);
  EXPECT_EQ(revisions[0].revision(), 5);
  EXPECT_EQ(client_->GetSyncPolicy("mnist")->revision(), 5);
}

TEST_F(ClientCalls, WatchUntilTheCallerHasSeenEnough) {
  ASSERT_THAT(client_->CreateJob(Spec("mnist")), IsOk());
  int seen = 0;
  EXPECT_THAT(client_->WatchJob("mnist", absl::Seconds(20),
                                [&](const v1::WatchJobResponse&) { return ++seen < 1; }),
              IsOk());
  EXPECT_EQ(seen, 1);
}

TEST_F(ClientCalls, AWatchSaysThatTheJobWasDeleted) {
  ASSERT_THAT(client_->CreateJob(Spec("mnist")), IsOk());
  EXPECT_THAT(client_->WatchJob("mnist", absl::Seconds(20),
                                [&](const v1::WatchJobResponse&) {
                                  EXPECT_THAT(client_->DeleteJob("mnist"), IsOk());
                                  return true;
                                }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
}

TEST_F(ClientCalls, AWatchEndsAtItsDeadline) {
  ASSERT_THAT(client_->CreateJob(Spec("mnist")), IsOk());
  EXPECT_THAT(client_->WatchJob("mnist", absl::Milliseconds(200),
                                [&](const v1::WatchJobResponse&) { return true; }),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ClientCalls, SayThatTheCoordinatorCannotBeReachedOnceItIsGone) {
  ASSERT_THAT(client_->ListJobs(), IsOk());
  const std::string address = server_->address();
  server_.reset();
  EXPECT_THAT(client_->ListJobs(), StatusIs(absl::StatusCode::kUnavailable,
                                            AllOf(HasSubstr(address), HasSubstr("running?"))));
}

TEST(Client, NeedsAnAddress) {
  EXPECT_THAT(Client::Connect(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
