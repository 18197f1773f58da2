#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobServiceRpc : public RpcFixture {
 protected:
  absl::StatusOr<v1::Job> Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_job(name);
    v1::GetJobResponse response;
    const absl::Status status = Call(jobs_, &v1::JobService::Stub::GetJob, request, &response);
    if (!status.ok()) return status;
    return response.job();
  }
  absl::Status Delete(const std::string& name) {
    v1::DeleteJobRequest request;
    request.set_job(name);
    v1::DeleteJobResponse response;
    return Call(jobs_, &v1::JobService::Stub::DeleteJob, request, &response);
  }
  absl::Status List(int page_size, const std::string& token, v1::ListJobsResponse* response) {
    v1::ListJobsRequest request;
    request.set_page_size(page_size);
    request.set_page_token(token);
    return Call(jobs_, &v1::JobService::Stub::ListJobs, request, response);
  }
};

TEST_F(JobServiceRpc, ACreatedJobCanBeReadUntilItIsDeleted) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  EXPECT_EQ(created_.job().spec().name(), "mnist");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::Job job, Get("mnist"));
  EXPECT_EQ(job.spec().min_workers(), 2);
  EXPECT_EQ(job.spec().lease().seconds(), 10);
  EXPECT_EQ(job.state(), v1::Job::STATE_WAITING);
  EXPECT_EQ(job.policy().revision(), 1);
  EXPECT_EQ(job.policy().state(), v1::SyncPolicyRevision::STATE_EFFECTIVE);
  EXPECT_GT(job.create_time().seconds(), 0);
  EXPECT_THAT(Delete("mnist"), IsOk());
  EXPECT_THAT(Get("mnist"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("mnist")));
}

TEST_F(JobServiceRpc, RefusesWhatIsMalformedAndChangesNothing) {
  EXPECT_THAT(CreateJob("Not A Name"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(CreateJob("mnist", -1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Get(""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Get(std::string(1000, 'a')), StatusIs(absl::StatusCode::kInvalidArgument));
  v1::ListJobsResponse jobs;
  ASSERT_THAT(List(0, "", &jobs), IsOk());
  EXPECT_EQ(jobs.jobs_size(), 0);
}

TEST_F(JobServiceRpc, RefusesAJobTwice) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  EXPECT_THAT(CreateJob("mnist"), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(JobServiceRpc, PagesGiveEachJobOnceInOrder) {
  for (int i = 0; i < 5; ++i) ASSERT_THAT(CreateJob(absl::StrCat("job-", i)), IsOk());
  std::vector<std::string> names;
  std::vector<int> sizes;
  std::string token;
  do {
    v1::ListJobsResponse page;
    ASSERT_THAT(List(2, token, &page), IsOk());
    for (const v1::Job& job : page.jobs()) names.push_back(job.spec().name());
    sizes.push_back(page.jobs_size());
    token = page.next_page_token();
  } while (!token.empty());
  EXPECT_THAT(names, ElementsAre("job-0", "job-1", "job-2", "job-3", "job-4"));
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));
}

TEST_F(JobServiceRpc, AFullLastPageHasNoToken) {
  for (int i = 0; i < 2; ++i) ASSERT_THAT(CreateJob(absl::StrCat("job-", i)), IsOk());
  v1::ListJobsResponse page;
  ASSERT_THAT(List(2, "", &page), IsOk());
  EXPECT_EQ(page.next_page_token(), "");
}

TEST_F(JobServiceRpc, RefusesAPageTokenThatItDidNotGive) {
  v1::ListJobsResponse page;
  EXPECT_THAT(List(2, "garbage", &page), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(JobServiceRpc, ThereIsNoShardPlanBeforeAnEpoch) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  v1::GetShardPlanRequest request;
  request.set_job("mnist");
  v1::GetShardPlanResponse response;
  EXPECT_THAT(Call(jobs_, &v1::JobService::Stub::GetShardPlan, request, &response),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JobServiceRpc, AWatchTellsTheStateNowThenChangesAndEndsWithTheJob) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
  v1::WatchJobRequest request;
  request.set_job("mnist");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse state;
  ASSERT_TRUE(reader->Read(&state));
  EXPECT_EQ(state.job().state(), v1::Job::STATE_WAITING);
  EXPECT_EQ(state.workers_size(), 0);

  {
    RawWorker worker(*membership_);
    ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
    do {
      ASSERT_TRUE(reader->Read(&state));
    } while (state.workers_size() == 0);
    EXPECT_EQ(state.workers(0).name(), "w0");
    EXPECT_EQ(state.workers(0).rank(), -1);
    v1::AttendRequest leave;
    leave.mutable_leave();
    ASSERT_TRUE(worker.Write(leave));
    EXPECT_THAT(worker.Finish(), IsOk());
  }
  ASSERT_THAT(Delete("mnist"), IsOk());
  while (reader->Read(&state)) {
  }
  EXPECT_THAT(FromGrpcStatus(reader->Finish()), IsOk());
}

TEST_F(JobServiceRpc, DrainsAWorkerWhoseStreamThenEndsCancelled) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  v1::DrainWorkerRequest request;
  request.set_job("mnist");
  request.set_worker("w1");
  v1::DrainWorkerResponse response;
  const auto drain = [&] {
    return Call(jobs_, &v1::JobService::Stub::DrainWorker, request, &response);
  };
  EXPECT_THAT(drain(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no worker 'w1'")));
  request.set_worker("w0");
  EXPECT_THAT(drain(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0 of at least")));
  request.set_allow_waiting(true);
  EXPECT_THAT(drain(), IsOk());
  EXPECT_EQ(response.log_number(), 1);
  v1::AttendRequest stopped;
  stopped.mutable_epoch_stopped()->set_epoch(worker.epoch());
  stopped.mutable_epoch_stopped()->set_step(5);
  ASSERT_TRUE(worker.Apply(1, 5));
  ASSERT_TRUE(worker.Write(stopped));
  v1::AttendResponse heard;
  while (!heard.has_abort_epoch()) ASSERT_TRUE(worker.Read(&heard));
  EXPECT_EQ(heard.abort_epoch().why().code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("was drained")));
  request.clear_job();
  EXPECT_THAT(drain(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(JobServiceRpc, AsksForACheckpointOfARunningEpoch) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  v1::CheckpointNowRequest request;
  request.set_job("mnist");
  v1::CheckpointNowResponse response;
  const auto checkpoint = [&] {
    return Call(jobs_, &v1::JobService::Stub::CheckpointNow, request, &response);
  };
  EXPECT_THAT(checkpoint(), StatusIs(absl::StatusCode::kFailedPrecondition));
  RawWorker worker(*membership_);
  worker.Join("mnist", "w0");
  EXPECT_THAT(checkpoint(), IsOk());
  EXPECT_EQ(response.log_number(), 1);
  v1::AttendResponse heard;
  while (!heard.has_new_entries()) ASSERT_TRUE(worker.Read(&heard));
  EXPECT_TRUE(heard.new_entries().entries(0).has_checkpoint_once());
}

TEST_F(JobServiceRpc, AWatchOfNoJobIsRefused) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
  v1::WatchJobRequest request;
  request.set_job("none");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse state;
  EXPECT_FALSE(reader->Read(&state));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobServiceRpc, AWatchEndsUnavailableWhenTheCoordinatorStops) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
  v1::WatchJobRequest request;
  request.set_job("mnist");
  const auto reader = jobs_->WatchJob(&context, request);
  v1::WatchJobResponse state;
  ASSERT_TRUE(reader->Read(&state));
  server_->Stop();
  EXPECT_FALSE(reader->Read(&state));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace lockstep
