#include "client/client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/policy.grpc.pb.h"
#include "proto/convert/status_convert.h"
#include "security/tls.h"

namespace lockstep {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kMaxPages = 100'000;
constexpr int kPreviewPageSize = 10'000;

grpc::ChannelArguments ChannelSettings() {
  grpc::ChannelArguments settings;
  settings.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A proxy of the environment is for the outside; the coordinator is on the inside.
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  return settings;
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace

class Client::Impl {
 public:
  Impl(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : address_(address),
        channel_(grpc::CreateCustomChannel(address, credentials, ChannelSettings())),
        jobs_(v1::JobService::NewStub(channel_)),
        policies_(v1::SyncPolicyService::NewStub(channel_)) {}

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::SyncPolicyService::Stub& policies() { return *policies_; }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, const CallOptions& options) {
    grpc::ClientContext context;
    SetDeadline(context, options.timeout);
    Response response;
    const absl::Status status =
        Explain((stub.*method)(&context, request, &response), options.timeout);
    if (!status.ok()) return status;
    return response;
  }

  // Tells "cannot be reached" from what the coordinator says itself.
  absl::Status Explain(const grpc::Status& status, absl::Duration timeout) {
    if (status.ok()) return absl::OkStatus();
    const bool is_connected = channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!is_connected && (is_late || status.error_code() == grpc::StatusCode::UNAVAILABLE)) {
      return absl::UnavailableError(
          absl::StrCat("cannot reach the coordinator at ", address_, "; is it running?"));
    }
    if (is_late) {
      return absl::DeadlineExceededError(absl::StrCat("no answer of the coordinator at ", address_,
                                                      " within ", absl::FormatDuration(timeout)));
    }
    return FromGrpcStatus(status);
  }

 private:
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::SyncPolicyService::Stub> policies_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& address,
                                                        const TlsFiles& tls) {
  if (address.empty()) {
    return absl::InvalidArgumentError("the coordinator's address is empty; give HOST:PORT");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                            ChannelCredentialsOf(tls));
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(address, credentials)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<v1::Job> Client::CreateJob(const v1::JobSpec& spec, const CallOptions& options) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  LOCKSTEP_ASSIGN_OR_RETURN(
      v1::CreateJobResponse response,
      impl_->Call(impl_->jobs(), &v1::JobService::Stub::CreateJob, request, options));
  return std::move(*response.mutable_job());
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job, const CallOptions& options) {
  v1::GetJobRequest request;
  request.set_job(job);
  LOCKSTEP_ASSIGN_OR_RETURN(
      v1::GetJobResponse response,
      impl_->Call(impl_->jobs(), &v1::JobService::Stub::GetJob, request, options));
  return std::move(*response.mutable_job());
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(const CallOptions& options) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  for (int page = 0; page < kMaxPages; ++page) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::ListJobsResponse response,
        impl_->Call(impl_->jobs(), &v1::JobService::Stub::ListJobs, request, options));
    for (v1::Job& job : *response.mutable_jobs()) jobs.push_back(std::move(job));
    if (response.next_page_token().empty()) break;
    request.set_page_token(response.next_page_token());
  }
  return jobs;
}

absl::Status Client::DeleteJob(const std::string& job, const CallOptions& options) {
  v1::DeleteJobRequest request;
  request.set_job(job);
  return impl_->Call(impl_->jobs(), &v1::JobService::Stub::DeleteJob, request, options).status();
}

absl::StatusOr<std::vector<v1::Worker>> Client::ListWorkers(const std::string& job,
                                                            const CallOptions& options) {
  std::vector<v1::Worker> workers;
  v1::ListWorkersRequest request;
  request.set_job(job);
  for (int page = 0; page < kMaxPages; ++page) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::ListWorkersResponse response,
        impl_->Call(impl_->jobs(), &v1::JobService::Stub::ListWorkers, request, options));
    for (v1::Worker& worker : *response.mutable_workers()) workers.push_back(std::move(worker));
    if (response.next_page_token().empty()) break;
    request.set_page_token(response.next_page_token());
  }
  return workers;
}

absl::StatusOr<v1::GetShardPlanResponse> Client::GetShardPlan(const std::string& job,
                                                              const CallOptions& options) {
  v1::GetShardPlanRequest request;
  request.set_job(job);
  return impl_->Call(impl_->jobs(), &v1::JobService::Stub::GetShardPlan, request, options);
}

absl::StatusOr<std::int64_t> Client::DrainWorker(const v1::DrainWorkerRequest& request,
                                                 const CallOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::DrainWorkerResponse response,
      impl_->Call(impl_->jobs(), &v1::JobService::Stub::DrainWorker, request, options));
  return response.log_number();
}

absl::StatusOr<std::int64_t> Client::CheckpointNow(const std::string& job,
                                                   const CallOptions& options) {
  v1::CheckpointNowRequest request;
  request.set_job(job);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::CheckpointNowResponse response,
      impl_->Call(impl_->jobs(), &v1::JobService::Stub::CheckpointNow, request, options));
  return response.log_number();
}

absl::StatusOr<v1::SyncPolicyRevision> Client::GetSyncPolicy(const std::string& job,
                                                             std::int64_t revision,
                                                             const CallOptions& options) {
  v1::GetSyncPolicyRequest request;
  request.set_job(job);
  request.set_revision(revision);
  LOCKSTEP_ASSIGN_OR_RETURN(v1::GetSyncPolicyResponse response,
                            impl_->Call(impl_->policies(),
                                        &v1::SyncPolicyService::Stub::GetSyncPolicy, request,
                                        options));
  return std::move(*response.mutable_revision());
}

absl::StatusOr<v1::SyncPolicyRevision> Client::UpdateSyncPolicy(
    const v1::UpdateSyncPolicyRequest& request, const CallOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(v1::UpdateSyncPolicyResponse response,
                            impl_->Call(impl_->policies(),
                                        &v1::SyncPolicyService::Stub::UpdateSyncPolicy, request,
                                        options));
  return std::move(*response.mutable_revision());
}

absl::StatusOr<v1::PreviewSyncPolicyResponse> Client::PreviewSyncPolicy(
    const v1::PreviewSyncPolicyRequest& request, const CallOptions& options) {
  v1::PreviewSyncPolicyRequest page_request = request;
  page_request.set_page_size(kPreviewPageSize);
  page_request.clear_page_token();
  std::optional<v1::PreviewSyncPolicyResponse> all;
  for (int page = 0; page < kMaxPages; ++page) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::PreviewSyncPolicyResponse response,
        impl_->Call(impl_->policies(), &v1::SyncPolicyService::Stub::PreviewSyncPolicy,
                    page_request, options));
    page_request.set_page_token(response.next_page_token());
    if (!all) {
      all = std::move(response);
    } else {
      for (v1::BufferPreview& buffer : *response.mutable_buffers()) {
        *all->add_buffers() = std::move(buffer);
      }
    }
    if (page_request.page_token().empty()) break;
  }
  all->clear_next_page_token();
  return *std::move(all);
}

absl::StatusOr<std::vector<v1::SyncPolicyRevision>> Client::ListSyncPolicyRevisions(
    const std::string& job, int limit, const CallOptions& options) {
  std::vector<v1::SyncPolicyRevision> revisions;
  v1::ListSyncPolicyRevisionsRequest request;
  request.set_job(job);
  while (static_cast<int>(revisions.size()) < limit) {
    request.set_page_size(limit - static_cast<int>(revisions.size()));
    LOCKSTEP_ASSIGN_OR_RETURN(v1::ListSyncPolicyRevisionsResponse response,
                              impl_->Call(impl_->policies(),
                                          &v1::SyncPolicyService::Stub::ListSyncPolicyRevisions,
                                          request, options));
    for (v1::SyncPolicyRevision& revision : *response.mutable_revisions()) {
      revisions.push_back(std::move(revision));
    }
    if (response.next_page_token().empty()) break;
    request.set_page_token(response.next_page_token());
  }
  return revisions;
}

absl::StatusOr<std::int64_t> Client::SyncNow(const v1::SyncNowRequest& request,
                                             const CallOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::SyncNowResponse response,
      impl_->Call(impl_->policies(), &v1::SyncPolicyService::Stub::SyncNow, request, options));
  return response.log_number();
}

absl::Status Client::WatchJob(const std::string& job, absl::Duration timeout,
                              const std::function<bool(const v1::WatchJobResponse&)>& changed) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::WatchJobRequest request;
  request.set_job(job);
  const auto reader = impl_->jobs().WatchJob(&context, request);
  v1::WatchJobResponse response;
  while (reader->Read(&response)) {
    if (changed(response)) continue;
    context.TryCancel();
    (void)reader->Finish();
    return absl::OkStatus();
  }
  const grpc::Status end = reader->Finish();
  if (end.ok()) return absl::NotFoundError(absl::StrCat("job '", job, "' was deleted"));
  // A watch is late by intention, while the coordinator is well.
  if (end.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && response.has_job()) {
    return absl::DeadlineExceededError(
        absl::StrCat("watched job '", job, "' for ", absl::FormatDuration(timeout)));
  }
  return impl_->Explain(end, timeout);
}

}  // namespace lockstep
