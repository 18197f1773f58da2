#include "client/ctl/policy_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ctl/preview_table.h"
#include "client/ctl/render.h"
#include "client/ctl/wait.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// The revision as it is once effective.
ExitCode AwaitRevision(Context& context, const std::string& job,
                       v1::SyncPolicyRevision& revision) {
  const ExitCode waited = AwaitEntry(context, job, revision.log_number());
  if (waited != ExitCode::kOk) return waited;
  absl::StatusOr<v1::SyncPolicyRevision> effective =
      context.client->GetSyncPolicy(job, revision.revision(), context.call());
  if (!effective.ok()) return Fail(effective.status());
  revision = *std::move(effective);
  return ExitCode::kOk;
}

absl::StatusOr<v1::PreviewSyncPolicyResponse> Preview(Context& context, const std::string& job,
                                                      const v1::SyncPolicy& policy) {
  v1::PreviewSyncPolicyRequest request;
  request.set_job(job);
  *request.mutable_policy() = policy;
  return context.client->PreviewSyncPolicy(request, context.call());
}

}  // namespace

absl::StatusOr<v1::SyncPolicyRevision> Send(Context& context, const std::string& job,
                                            const v1::SyncPolicy& policy, const std::string& etag,
                                            const SendFlags& flags) {
  v1::UpdateSyncPolicyRequest request;
  request.set_job(job);
  *request.mutable_policy() = policy;
  request.set_etag(etag);
  request.set_validate_only(flags.validate_only);
  request.set_allow_unmatched(flags.allow_unmatched);
  request.set_author(flags.author);
  request.set_reason(flags.reason);
  return context.client->UpdateSyncPolicy(request, context.call());
}

ExitCode Conclude(Context& context, const std::string& job, const v1::SyncPolicyRevision& present,
                  v1::SyncPolicyRevision revision, const SendFlags& flags) {
  if (flags.wait) {
    const ExitCode waited = AwaitRevision(context, job, revision);
    if (waited != ExitCode::kOk) return waited;
  }
  const std::string name = absl::StrCat("revision ", revision.revision());
  if (context.json) {
    Print(RenderJson(revision));
  } else if (revision.revision() == present.revision()) {
    Print(absl::StrCat("nothing to change: ", name, " is the same\n"));
  } else if (flags.validate_only) {
    Print("valid; nothing was changed\n");
  } else if (flags.wait) {
    Print(absl::StrCat(name, " took effect after step ", revision.effective_step(), "\n"));
  } else {
    Print(absl::StrCat(name, " is pending\n"));
  }
  return ExitCode::kOk;
}

NamedPolicy Named(const v1::SyncPolicyRevision& revision) {
  return {.name = absl::StrCat("revision ", revision.revision()), .policy = revision.policy()};
}

absl::StatusOr<PolicyDiff> Compare(Context& context, const std::string& job,
                                   const NamedPolicy& before, const NamedPolicy& after) {
  PolicyDiff diff = {.before = before.name, .after = after.name};
  LOCKSTEP_ASSIGN_OR_RETURN(diff.fields, DiffPolicies(before.policy, after.policy));
  if (diff.fields.empty()) {
    diff.buffers.emplace();
    return diff;
  }
  const auto preview_before = Preview(context, job, before.policy);
  if (absl::IsFailedPrecondition(preview_before.status())) return diff;
  LOCKSTEP_RETURN_IF_ERROR(preview_before.status());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::PreviewSyncPolicyResponse preview_after,
                            Preview(context, job, after.policy));
  diff.buffers = DiffTreatments(*preview_before, preview_after);
  return diff;
}

absl::StatusOr<std::int64_t> RevisionBefore(const v1::SyncPolicyRevision& newest) {
  if (newest.revision() > 1) return newest.revision() - 1;
  return absl::NotFoundError("revision 1 is the job's first policy; there is none before it");
}

}  // namespace lockstep
