// A real server on a loopback port with a store in memory, raw stubs to it, and
// workers played by hand.
#ifndef LOCKSTEP_COORDINATOR_RPC_RPC_FIXTURE_H_
#define LOCKSTEP_COORDINATOR_RPC_RPC_FIXTURE_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mono_time.h"
#include "common/base/status_matchers.h"
#include "coordinator/server/server.h"
#include "coordinator/store/memory_store.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/membership.grpc.pb.h"
#include "lockstep/v1/policy.grpc.pb.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"

namespace lockstep {

// Every call of a test ends after this, so that a lost answer is a failure.
inline constexpr std::chrono::seconds kRpcDeadline(20);

class RpcFixture : public testing::Test {
 protected:
  explicit RpcFixture(AttendLimits limits = {}) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.attend_limits = limits;
    auto server = CoordinatorServer::Start(options, std::make_unique<MemoryStore>(), &clock_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    grpc::ChannelArguments settings;
    settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                         settings);
    jobs_ = v1::JobService::NewStub(channel_);
    policies_ = v1::SyncPolicyService::NewStub(channel_);
    membership_ = v1::MembershipService::NewStub(channel_);
  }

  template <typename Stub, typename Request, typename Response>
  absl::Status Call(const std::unique_ptr<Stub>& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
    return FromGrpcStatus((stub.get()->*method)(&context, request, response));
  }

  v1::CreateJobResponse created_;
  absl::Status CreateJob(const std::string& name, int min_workers = 1) {
    v1::CreateJobRequest request;
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->set_min_workers(min_workers);
    return Call(jobs_, &v1::JobService::Stub::CreateJob, request, &created_);
  }

  RealClock clock_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::SyncPolicyService::Stub> policies_;
  std::unique_ptr<v1::MembershipService::Stub> membership_;
};

// A worker's end of an Attend stream, by hand.
class RawWorker {
 public:
  explicit RawWorker(v1::MembershipService::Stub& stub) {
    context_.set_deadline(std::chrono::system_clock::now() + kRpcDeadline);
    stream_ = stub.Attend(&context_);
  }
  bool Write(const v1::AttendRequest& request) { return stream_->Write(request); }
  bool Read(v1::AttendResponse* response) { return stream_->Read(response); }
  absl::Status Finish() {
    v1::AttendResponse ignored;
    while (stream_->Read(&ignored)) {
    }
    return FromGrpcStatus(stream_->Finish());
  }
  // From Hello to Start, as a member of an epoch of its own.
  void Join(const std::string& job, const std::string& name) {
    v1::AttendResponse heard;
    ASSERT_TRUE(Write(Hello(job, name)));
    while (!heard.has_proposal()) ASSERT_TRUE(Read(&heard));
    epoch_ = heard.proposal().epoch();
    const absl::StatusOr<ShardPlan> plan = FromProto(heard.proposal().plan());
    ASSERT_THAT(plan, IsOk());
    v1::AttendRequest request;
    request.mutable_endpoint()->set_epoch(epoch_);
    request.mutable_endpoint()->set_bytes("here");
    ASSERT_TRUE(Write(request));
    request.mutable_ready()->set_epoch(epoch_);
    request.mutable_ready()->set_plan_digest(plan->Digest());
    ASSERT_TRUE(Write(request));
    while (!heard.has_start()) ASSERT_TRUE(Read(&heard));
  }
  bool Apply(std::int64_t log_number, std::int64_t step) {
    v1::AttendRequest request;
    request.mutable_applied()->set_epoch(epoch_);
    request.mutable_applied()->set_log_number(log_number);
    request.mutable_applied()->set_step(step);
    return Write(request);
  }
  std::int64_t epoch() const { return epoch_; }

  void WritesDone() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  static v1::AttendRequest Hello(const std::string& job, const std::string& worker) {
    v1::AttendRequest request;
    v1::Hello* hello = request.mutable_hello();
    hello->set_job(job);
    hello->set_worker(worker);
    hello->set_incarnation(1);
    hello->set_transport("test");
    v1::TensorSpec* weight = hello->mutable_manifest()->add_parameters();
    weight->set_name("weight");
    weight->set_dtype(12);
    weight->add_shape(100);
    v1::TensorSpec* mean = hello->mutable_manifest()->add_buffers();
    mean->set_name("bn1.running_mean");
    mean->set_dtype(12);
    mean->add_shape(10);
    return request;
  }

 private:
  std::int64_t epoch_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_RPC_FIXTURE_H_
