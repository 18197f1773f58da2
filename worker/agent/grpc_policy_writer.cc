#include "worker/agent/grpc_policy_writer.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "lockstep/v1/policy.grpc.pb.h"
#include "lockstep/v1/policy.pb.h"
#include "proto/convert/convert.h"
#include "proto/convert/status_convert.h"
#include "worker/agent/grpc_channel.h"

namespace lockstep {
namespace {

constexpr char kOutcomeUnknown[] =
    "; whether the revision was made is not known: ask again, the same policy makes no second one "
    "unless another was made in between";

}  // namespace

absl::StatusOr<Revision> GrpcPolicyWriter::Revise(const SyncPolicy& policy,
                                                  const std::string& reason,
                                                  absl::Duration timeout) {
  // What is malformed may not even have a wire form.
  LOCKSTEP_RETURN_IF_ERROR(Validate(policy));
  v1::UpdateSyncPolicyRequest request;
  request.set_job(job_);
  *request.mutable_policy() = ToProto(policy);
  request.set_author(author_);
  request.set_reason(SendableMessage(reason));

  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::UpdateSyncPolicyResponse response;
  const absl::Status status =
      FromGrpcStatus(v1::SyncPolicyService::NewStub(OpenChannel(coordinator_))
                         ->UpdateSyncPolicy(&context, request, &response));
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", coordinator_.address, " did not answer to a policy revision ",
                     "within ", absl::FormatDuration(timeout), kOutcomeUnknown));
  }
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat("cannot revise the policy at the coordinator at ",
                                               coordinator_.address, ": ", status.message(),
                                               kOutcomeUnknown));
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  if (response.revision().revision() < 1) {
    return absl::InternalError(absl::StrCat("the coordinator at ", coordinator_.address,
                                            " answered to a policy revision without its number; "
                                            "are worker and coordinator of the same version?"));
  }
  return Revision(response.revision().revision());
}

}  // namespace lockstep
