#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/attend_stream.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class MembershipServiceRpc : public RpcFixture {
 protected:
  using RpcFixture::RpcFixture;

  v1::WatchJobResponse AwaitJob(const std::function<bool(const v1::WatchJobResponse&)>& is_so) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
    v1::WatchJobRequest request;
    request.set_job("mnist");
    const auto reader = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse state;
    while (reader->Read(&state)) {
      if (is_so(state)) {
        context.TryCancel();
        (void)reader->Finish();
        return state;
      }
    }
    ADD_FAILURE() << "the job did not become so: " << state.ShortDebugString();
    return state;
  }
};

TEST_F(MembershipServiceRpc, AWorkerIsWelcomedJoinsAnEpochAndTrains) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
  v1::AttendResponse heard;
  ASSERT_TRUE(worker.Read(&heard));
  ASSERT_TRUE(heard.has_welcome());
  EXPECT_EQ(heard.welcome().lease().seconds(), 10);
  ASSERT_TRUE(worker.Read(&heard));
  ASSERT_TRUE(heard.has_proposal());
  const v1::Proposal proposal = heard.proposal();
  EXPECT_THAT(proposal.members(), testing::ElementsAre("w0"));

  v1::AttendRequest endpoint;
  endpoint.mutable_endpoint()->set_epoch(proposal.epoch());
  endpoint.mutable_endpoint()->set_bytes("here");
  ASSERT_TRUE(worker.Write(endpoint));
  ASSERT_TRUE(worker.Read(&heard));
  EXPECT_EQ(heard.endpoint().bytes(), "here");

  v1::GetShardPlanRequest plan_request;
  plan_request.set_job("mnist");
  v1::GetShardPlanResponse plan;
  ASSERT_THAT(Call(jobs_, &v1::JobService::Stub::GetShardPlan, plan_request, &plan), IsOk());
  EXPECT_EQ(plan.shards_size(), 1);
  ASSERT_EQ(plan.replica_costs_size(), 2);
  EXPECT_FALSE(plan.replica_costs(0).has_optimizer_bytes()) << "no member has told";
  v1::AttendRequest ready;
  ready.mutable_ready()->set_epoch(proposal.epoch());
  const std::int64_t state_bytes = 8 * plan.flat_elements();
  ready.mutable_ready()->set_optimizer_bytes(state_bytes);
  ready.mutable_ready()->set_plan_digest(std::stoull(plan.digest(), nullptr, 16));
  ASSERT_TRUE(worker.Write(ready));
  ASSERT_TRUE(worker.Read(&heard));
  ASSERT_TRUE(heard.has_start());
  ASSERT_THAT(Call(jobs_, &v1::JobService::Stub::GetShardPlan, plan_request, &plan), IsOk());
  for (const v1::ReplicaCost& cost : plan.replica_costs()) {
    EXPECT_EQ(cost.optimizer_bytes(), state_bytes) << "alone there is no buddy";
    EXPECT_EQ(cost.step_bytes(), 0);
  }

  // A decision reaches the worker, and its effect becomes part of the history.
  v1::UpdateSyncPolicyRequest update;
  update.set_job("mnist");
  update.mutable_policy()->add_ignore_list("bn1.*");
  v1::UpdateSyncPolicyResponse updated;
  ASSERT_THAT(
      Call(policies_, &v1::SyncPolicyService::Stub::UpdateSyncPolicy, update, &updated), IsOk());
  EXPECT_EQ(updated.revision().state(), v1::SyncPolicyRevision::STATE_PENDING);
  ASSERT_TRUE(worker.Read(&heard));
  ASSERT_EQ(heard.new_entries().entries_size(), 1);
  EXPECT_EQ(heard.new_entries().entries(0).policy_revised().revision(), 2);

  v1::AttendRequest applied;
  applied.mutable_applied()->set_epoch(proposal.epoch());
  applied.mutable_applied()->set_log_number(1);
  applied.mutable_applied()->set_step(7);
  ASSERT_TRUE(worker.Write(applied));
  const v1::WatchJobResponse state = AwaitJob([](const v1::WatchJobResponse& s) {
    return s.job().policy().state() == v1::SyncPolicyRevision::STATE_EFFECTIVE;
  });
  EXPECT_EQ(state.job().policy().effective_step(), 7);
  EXPECT_EQ(state.job().policy().effective_step_by_worker().at("w0"), 7);
  EXPECT_EQ(state.job().applied_log_number(), 1);
  EXPECT_EQ(state.workers(0).applied_log_number(), 1);
  EXPECT_EQ(state.workers(0).rank(), 0);
  EXPECT_EQ(state.job().state(), v1::Job::STATE_RUNNING);

  // What its syncs did is shown.
  v1::AttendRequest heartbeat;
  heartbeat.mutable_heartbeat()->set_epoch(proposal.epoch());
  heartbeat.mutable_heartbeat()->set_step(8);
  heartbeat.mutable_heartbeat()->mutable_sync()->set_syncs(8);
  heartbeat.mutable_heartbeat()->mutable_sync()->set_skipped_bytes(320);
  ASSERT_TRUE(worker.Write(heartbeat));
  const v1::WatchJobResponse synced = AwaitJob(
      [](const v1::WatchJobResponse& s) { return s.workers(0).step() == 8; });
  EXPECT_EQ(synced.workers(0).sync().syncs(), 8);
  EXPECT_EQ(synced.workers(0).sync().skipped_bytes(), 320);

  // A pattern that matches nothing is refused now that the model is known.
  update.mutable_policy()->add_ignore_list("bn2.*");
  EXPECT_THAT(
      Call(policies_, &v1::SyncPolicyService::Stub::UpdateSyncPolicy, update, &updated),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bn2.*")));
  update.set_allow_unmatched(true);
  EXPECT_THAT(
      Call(policies_, &v1::SyncPolicyService::Stub::UpdateSyncPolicy, update, &updated), IsOk());

  v1::AttendRequest leave;
  leave.mutable_leave()->set_epoch(proposal.epoch());
  ASSERT_TRUE(worker.Write(leave));
  EXPECT_THAT(worker.Finish(), IsOk());
}

TEST_F(MembershipServiceRpc, AMalformedFirstMessageEndsTheStream) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  RawWorker says_nothing(*membership_);
  says_nothing.Write(v1::AttendRequest());
  EXPECT_THAT(says_nothing.Finish(), StatusIs(absl::StatusCode::kInvalidArgument));

  RawWorker says_no_hello(*membership_);
  v1::AttendRequest heartbeat;
  heartbeat.mutable_heartbeat();
  says_no_hello.Write(heartbeat);
  EXPECT_THAT(says_no_hello.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Hello")));

  RawWorker has_odd_tensor(*membership_);
  v1::AttendRequest hello = RawWorker::Hello("mnist", "w0");
  hello.mutable_hello()->mutable_manifest()->mutable_parameters(0)->set_dtype(9999);
  has_odd_tensor.Write(hello);
  EXPECT_THAT(has_odd_tensor.Finish(), StatusIs(absl::StatusCode::kInvalidArgument));

  RawWorker says_hello_twice(*membership_);
  says_hello_twice.Write(RawWorker::Hello("mnist", "w0"));
  says_hello_twice.Write(RawWorker::Hello("mnist", "w0"));
  EXPECT_THAT(says_hello_twice.Finish(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(MembershipServiceRpc, BytesThatAreNoMessageEndTheStream) {
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
  const auto stream =
      stub.PrepareCall(&context, "/lockstep.v1.MembershipService/Attend", &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const grpc::Slice garbage("\x0a\x7fno message");
  stream->Write(grpc::ByteBuffer(&garbage, 1), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Status end;
  stream->Finish(&end, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_THAT(FromGrpcStatus(end), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("no AttendRequest")));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST(WireForm, IsMadeOnceForTheSameMessageAndKeptApartForOthers) {
  const auto bytes_of = [](const grpc::ByteBuffer& buffer) {
    grpc::Slice slice;
    EXPECT_TRUE(buffer.TrySingleSlice(&slice).ok());
    return slice;
  };
  // Long enough to lie outside of the slice itself.
  const auto message = std::make_shared<const CoordinatorMessage>(Waiting{std::string(1000, 'w')});
  WireForm wire;
  const grpc::ByteBuffer first = wire.Of(message), second = wire.Of(message);
  EXPECT_EQ(bytes_of(first).begin(), bytes_of(second).begin());
  const auto other = std::make_shared<const CoordinatorMessage>(Waiting{"other"});
  v1::AttendResponse parsed;
  const grpc::Slice of_other = bytes_of(wire.Of(other));
  ASSERT_TRUE(parsed.ParseFromArray(of_other.begin(), static_cast<int>(of_other.size())));
  EXPECT_EQ(parsed.waiting().detail(), "other");
  const grpc::Slice of_first = bytes_of(first);
  ASSERT_TRUE(parsed.ParseFromArray(of_first.begin(), static_cast<int>(of_first.size())));
  EXPECT_EQ(parsed.waiting().detail(), std::string(1000, 'w'));
}

TEST_F(MembershipServiceRpc, AWorkerOfNoJobIsTurnedAway) {
  RawWorker worker(*membership_);
  worker.Write(RawWorker::Hello("none", "w0"));
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MembershipServiceRpc, ABrokenStreamMakesTheWorkerASuspect) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
  v1::AttendResponse welcome;
  ASSERT_TRUE(worker.Read(&welcome));
  worker.Cancel();
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kCancelled));
  AwaitJob([](const v1::WatchJobResponse& state) {
    return state.workers_size() == 1 && state.workers(0).state() == v1::Worker::STATE_SUSPECT;
  });
}

TEST_F(MembershipServiceRpc, AHalfClosedStreamEnds) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
  worker.WritesDone();
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(MembershipServiceRpc, StreamsEndUnavailableWhenTheCoordinatorStops) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
  v1::AttendResponse welcome;
  ASSERT_TRUE(worker.Read(&welcome));
  server_->Stop();
  EXPECT_THAT(worker.Finish(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(MembershipServiceRpc, AManifestOfManyTensorsFitsAMessage) {
  ASSERT_THAT(CreateJob("mnist", 2), IsOk());
  RawWorker worker(*membership_);
  v1::AttendRequest hello = RawWorker::Hello("mnist", "w0");
  for (int i = 0; i < 100'000; ++i) {
    v1::TensorSpec* buffer = hello.mutable_hello()->mutable_manifest()->add_buffers();
    buffer->set_name(absl::StrCat("a.rather.long.module.name.of.the.kind.models.have.", i));
    buffer->set_dtype(12);
  }
  ASSERT_GT(hello.ByteSizeLong(), 4u << 20);
  ASSERT_TRUE(worker.Write(hello));
  v1::AttendResponse welcome;
  EXPECT_TRUE(worker.Read(&welcome));
  EXPECT_TRUE(welcome.has_welcome());
}

// Bounds so small that a worker that does not read passes them.
class NarrowMembershipServiceRpc : public MembershipServiceRpc {
 protected:
  NarrowMembershipServiceRpc() : MembershipServiceRpc({.max_waiting_messages = 3}) {}
};

TEST_F(NarrowMembershipServiceRpc, ASlowReaderIsSentAwayAndTheOthersAreServed) {
  ASSERT_THAT(CreateJob("mnist"), IsOk());
  // A channel of its own whose window does not grow with the traffic of others.
  grpc::ChannelArguments settings;
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  settings.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::MembershipService::NewStub(grpc::CreateCustomChannel(
      server_->address(), grpc::InsecureChannelCredentials(), settings));
  RawWorker worker(*stub);
  worker.Join("mnist", "w0");

  // From here on the worker does not read. The stream's window takes some.
  v1::UpdateSyncPolicyRequest update;
  update.set_job("mnist");
  update.set_allow_unmatched(true);
  for (int i = 0; i < 100; ++i) {
    update.mutable_policy()->add_ignore_list(absl::StrCat(std::string(1000, 'x'), i));
  }
  v1::UpdateSyncPolicyResponse updated;
  for (int i = 0; i < 20; ++i) {
    update.mutable_policy()->set_check_parameters_every_steps(i + 1);
    ASSERT_THAT(Call(policies_, &v1::SyncPolicyService::Stub::UpdateSyncPolicy, update, &updated),
                IsOk());
  }
  EXPECT_THAT(worker.Finish(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("reads too slowly")));
}

}  // namespace
}  // namespace lockstep
