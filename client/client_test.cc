#include "client/client.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lockstep/v1/policy.grpc.pb.h"

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
  for (int steps = 1; steps <= 4; ++steps) {
    update.mutable_policy()->mutable_schedule()->set_every_steps(steps);
    ASSERT_THAT(client_->UpdateSyncPolicy(update), IsOk());
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto revisions,
                                client_->ListSyncPolicyRevisions("mnist", 2));
  ASSERT_EQ(revisions.size(), 2u);
  EXPECT_EQ(revisions[0].revision(), 5);
  EXPECT_EQ(client_->GetSyncPolicy("mnist")->revision(), 5);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto third, client_->GetSyncPolicy("mnist", 3));
  EXPECT_EQ(third.revision(), 3);
  EXPECT_EQ(third.policy().schedule().every_steps(), 2);
  EXPECT_THAT(client_->GetSyncPolicy("mnist", 6), StatusIs(absl::StatusCode::kNotFound));
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

// Answers in pages of two buffers, whatever is asked for, and remembers requests.
class PagedPreviews : public v1::SyncPolicyService::Service {
 public:
  grpc::Status PreviewSyncPolicy(grpc::ServerContext*, const v1::PreviewSyncPolicyRequest* request,
                                 v1::PreviewSyncPolicyResponse* response) override {
    requests.push_back(*request);
    const int page = request->page_token().empty() ? 0 : std::stoi(request->page_token());
    if (page == fails_at) return {grpc::StatusCode::INVALID_ARGUMENT, "bad page token"};
    for (int i = 0; i < 2; ++i) response->add_buffers()->set_name(absl::StrCat("b", 2 * page + i));
    response->set_total_buffers(6);
    if (page < 2) response->set_next_page_token(absl::StrCat(page + 1));
    return grpc::Status::OK;
  }
  std::vector<v1::PreviewSyncPolicyRequest> requests;
  int fails_at = -1;
};

class ClientPreview : public testing::Test {
 protected:
  ClientPreview() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ = *Client::Connect(absl::StrCat("127.0.0.1:", port));
    request_.set_job("mnist");
    request_.mutable_policy()->set_skip_unchanged(true);
    request_.set_page_token("1");
  }
  PagedPreviews service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  v1::PreviewSyncPolicyRequest request_;
};

TEST_F(ClientPreview, GathersAllPagesFromTheFirst) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto preview, client_->PreviewSyncPolicy(request_));
  ASSERT_EQ(preview.buffers_size(), 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(preview.buffers(i).name(), absl::StrCat("b", i));
  EXPECT_EQ(preview.total_buffers(), 6);
  EXPECT_EQ(preview.next_page_token(), "");
  ASSERT_EQ(service_.requests.size(), 3u);
  for (const auto& request : service_.requests) {
    EXPECT_EQ(request.job(), "mnist");
    EXPECT_TRUE(request.policy().skip_unchanged());
  }
}

TEST_F(ClientPreview, FailsIfAPageFails) {
  service_.fails_at = 2;
  EXPECT_THAT(client_->PreviewSyncPolicy(request_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page token")));
}

TEST(Client, NeedsAnAddress) {
  EXPECT_THAT(Client::Connect(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
