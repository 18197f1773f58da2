#include "coordinator/rpc/sync_policy_service.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/manifest/manifest.h"
#include "common/policy/preview.h"
#include "coordinator/rpc/completion.h"
#include "coordinator/rpc/page.h"
#include "coordinator/rpc/preview_view.h"
#include "coordinator/rpc/read_job.h"
#include "coordinator/rpc/view_convert.h"
#include "grpcpp/alarm.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

constexpr PageLimits kRevisionPages = {.default_size = 100, .max_size = 1000};
constexpr std::size_t kMaxAuthorBytes = 256;
constexpr std::size_t kMaxReasonBytes = 4096;

absl::Status CheckLength(absl::string_view field, const std::string& text, std::size_t limit) {
  if (text.size() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", text.size(), " bytes, but may have at most ", limit));
}

absl::StatusOr<UpdateSyncPolicy> Decode(const v1::UpdateSyncPolicyRequest& request) {
  LOCKSTEP_RETURN_IF_ERROR(CheckJobName(request.job()));
  LOCKSTEP_RETURN_IF_ERROR(CheckLength("author", request.author(), kMaxAuthorBytes));
  LOCKSTEP_RETURN_IF_ERROR(CheckLength("reason", request.reason(), kMaxReasonBytes));
  if (!request.has_policy()) {
    return absl::InvalidArgumentError(
        "policy is not set; an update replaces the whole policy, so send all of it");
  }
  UpdateSyncPolicy update;
  LOCKSTEP_ASSIGN_OR_RETURN(update.policy, FromProto(request.policy()));
  update.job = request.job();
  update.etag = request.etag();
  update.validate_only = request.validate_only();
  update.allow_unmatched = request.allow_unmatched();
  update.author = request.author();
  update.reason = request.reason();
  return update;
}

absl::StatusOr<SyncNow> Decode(const v1::SyncNowRequest& request) {
  LOCKSTEP_RETURN_IF_ERROR(CheckJobName(request.job()));
  SyncNow sync;
  sync.job = request.job();
  sync.what.buffers = request.buffers();
  sync.what.parameters = request.parameters();
  if (request.has_root()) {
    LOCKSTEP_ASSIGN_OR_RETURN(sync.what.root, FromProto(request.root()));
  }
  return sync;
}

// What a preview is made from.
struct PreviewInputs {
  SyncPolicy policy;
  Manifest manifest;
  std::vector<std::string> members;
  std::vector<std::string> other_names;  // of buffers that only other workers have
};

absl::StatusOr<PreviewInputs> InputsOf(const JobState& job, std::optional<SyncPolicy> policy) {
  PreviewInputs inputs = {.policy = policy.has_value() ? *std::move(policy)
                                                       : job.newest_policy().policy};
  const Manifest* const model = KnownModel(job);
  if (model == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model of job '", job.spec.name,
                     "' is not known yet; ask again once a worker attends"));
  }
  inputs.manifest = *model;
  const std::vector<absl::string_view> names = KnownBufferNames(job);
  for (std::size_t i = model->buffers.size(); i < names.size(); ++i) {
    inputs.other_names.emplace_back(names[i]);
  }
  if (job.epoch) {
    for (const Member& member : job.epoch->members) inputs.members.push_back(member.worker);
  }
  return inputs;
}

absl::StatusOr<v1::PreviewSyncPolicyResponse> ViewOfPage(const PreviewInputs& inputs,
                                                         const Page& page) {
  const auto count = static_cast<std::int64_t>(inputs.manifest.buffers.size());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::int64_t first, FirstOfPage(page, count));
  if (first == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const PolicyPreview preview,
        Preview(inputs.policy, inputs.manifest, inputs.members, inputs.other_names));
    return ViewOfPreview(preview, page);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<BufferPreview> rows,
      PreviewBuffers(inputs.policy, inputs.manifest, inputs.members, first, page.size));
  return ViewOfRows(rows, first, count, page);
}

// On a thread of gRPC's own.
void RunLater(std::function<void()> work) {
  auto* alarm = new grpc::Alarm;
  alarm->Set(std::chrono::system_clock::now(), [alarm, work = std::move(work)](bool) {
    const std::unique_ptr<grpc::Alarm> owner(alarm);
    work();
  });
}

void FillRevisions(const JobState& job, std::int64_t below, const Page& page,
                   v1::ListSyncPolicyRevisionsResponse* response) {
  PageFill fill(page);
  const auto count = static_cast<std::int64_t>(job.policies.size());
  for (std::int64_t revision = std::min(below - 1, count); revision >= 1; --revision) {
    if (!fill.Fits()) {
      response->set_next_page_token(PageToken("revisions", absl::StrCat(revision + 1)));
      return;
    }
    v1::SyncPolicyRevision* view = response->add_revisions();
    *view = ViewOfRevision(job, job.policies[static_cast<std::size_t>(revision - 1)]);
    fill.Add(view->ByteSizeLong());
  }
}

}  // namespace

grpc::ServerUnaryReactor* SyncPolicyService::GetSyncPolicy(grpc::CallbackServerContext* context,
                                                           const v1::GetSyncPolicyRequest* request,
                                                           v1::GetSyncPolicyResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  ReadJob(coordinator_, request->job(), std::make_shared<Completion>(reactor),
          [response, number = request->revision()](const JobState& job) {
            const auto count = static_cast<std::int64_t>(job.policies.size());
            if (number < 0 || number > count) {
              return absl::NotFoundError(absl::StrCat("job '", job.spec.name,
                                                      "' has no policy revision ", number,
                                                      "; it has revisions 1 to ", count));
            }
            const std::int64_t found = number == 0 ? count : number;
            *response->mutable_revision() =
                ViewOfRevision(job, job.policies[static_cast<std::size_t>(found - 1)]);
            return absl::OkStatus();
          });
  return reactor;
}

grpc::ServerUnaryReactor* SyncPolicyService::UpdateSyncPolicy(
    grpc::CallbackServerContext* context, const v1::UpdateSyncPolicyRequest* request,
    v1::UpdateSyncPolicyResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  absl::StatusOr<lockstep::UpdateSyncPolicy> update = Decode(*request);
  if (!update.ok()) {
    completion->Finish(update.status());
    return reactor;
  }
  // Of a caller who is known nobody else's name is taken.
  const std::string caller = gate_->Identify(*context).caller.name;
  if (!caller.empty()) update->author = caller;
  const std::string name = update->job;
  coordinator_->Submit(*std::move(update), [this, name, response, completion](
                                               const absl::StatusOr<Reply>& reply) {
    if (!reply.ok()) {
      completion->Finish(reply.status());
      return;
    }
    ReadJob(coordinator_, name, completion,
            [response, made = std::get<PolicyHistoryEntry>(*reply)](const JobState& job) {
              *response->mutable_revision() = ViewOfRevision(job, made);
              return absl::OkStatus();
            });
  });
  return reactor;
}

grpc::ServerUnaryReactor* SyncPolicyService::PreviewSyncPolicy(
    grpc::CallbackServerContext* context, const v1::PreviewSyncPolicyRequest* request,
    v1::PreviewSyncPolicyResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  absl::Status status = CheckJobName(request->job());
  const absl::StatusOr<Page> page = ParsePreviewPage(*request);
  if (status.ok()) status = page.status();
  std::optional<SyncPolicy> policy;
  if (status.ok() && request->has_policy()) {
    absl::StatusOr<SyncPolicy> given = FromProto(request->policy());
    status = given.status();
    if (given.ok()) policy = *std::move(given);
  }
  if (!status.ok()) {
    completion->Finish(status);
    return reactor;
  }
  coordinator_->Read([=, this, job = request->job(), page = *page](const ClusterState* state) {
    if (state == nullptr) {
      completion->Finish(NoState(*coordinator_));
      return;
    }
    const auto found = state->jobs.find(job);
    absl::StatusOr<PreviewInputs> inputs = found == state->jobs.end()
                                               ? NoSuchJob(job)
                                               : InputsOf(found->second, policy);
    if (!inputs.ok()) {
      completion->Finish(inputs.status());
      return;
    }
    // Many patterns on many buffers take their time, and leases end while the
    // coordinator's thread is busy.
    RunLater([=, inputs = *std::move(inputs)] {
      absl::StatusOr<v1::PreviewSyncPolicyResponse> view = ViewOfPage(inputs, page);
      if (view.ok()) *response = *std::move(view);
      completion->Finish(view.status());
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* SyncPolicyService::ListSyncPolicyRevisions(
    grpc::CallbackServerContext* context, const v1::ListSyncPolicyRevisionsRequest* request,
    v1::ListSyncPolicyRevisionsResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  const absl::StatusOr<Page> page =
      ParsePage("revisions", kRevisionPages, request->page_size(), request->page_token());
  std::int64_t below = INT64_MAX;
  if (!page.ok()) {
    completion->Finish(page.status());
    return reactor;
  }
  if (!page->after.empty() && (!absl::SimpleAtoi(page->after, &below) || below < 2)) {
    completion->Finish(absl::InvalidArgumentError(
        "page_token is not one that this list gave; begin again without a token"));
    return reactor;
  }
  ReadJob(coordinator_, request->job(), completion,
          [page = *page, below, response](const JobState& job) {
            FillRevisions(job, below, page, response);
            return absl::OkStatus();
          });
  return reactor;
}

grpc::ServerUnaryReactor* SyncPolicyService::SyncNow(grpc::CallbackServerContext* context,
                                                     const v1::SyncNowRequest* request,
                                                     v1::SyncNowResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  absl::StatusOr<lockstep::SyncNow> sync = Decode(*request);
  if (!sync.ok()) {
    completion->Finish(sync.status());
    return reactor;
  }
  coordinator_->Submit(
      *std::move(sync), [response, completion](const absl::StatusOr<Reply>& reply) {
        if (reply.ok()) response->set_log_number(std::get<LogNumber>(*reply).value());
        completion->Finish(reply.status());
      });
  return reactor;
}

}  // namespace lockstep
