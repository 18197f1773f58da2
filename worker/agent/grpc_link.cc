#include "worker/agent/grpc_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "security/tls.h"
#include "worker/agent/attendance.h"
#include "worker/agent/grpc_policy_writer.h"
#include "worker/agent/grpc_stream.h"

namespace lockstep {

absl::Status GrpcLinkOptions::Validate() const {
  if (address.empty()) {
    return absl::InvalidArgumentError(
        "the coordinator's address is empty; expected \"host:port\"");
  }
  if (connect_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connect_timeout is ", absl::FormatDuration(connect_timeout), "; expected more than 0"));
  }
  return tls.ValidateForClient();
}

absl::StatusOr<std::unique_ptr<CoordinatorLink>> ConnectToCoordinator(
    const GrpcLinkOptions& options, const Hello& hello) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  if (hello.job.empty() || hello.worker.empty() || !hello.incarnation.valid()) {
    return absl::InvalidArgumentError(
        "a Hello needs the job's name, the worker's name and an incarnation (NewIncarnation())");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                            ChannelCredentialsOf(options.tls));
  const CoordinatorAddress coordinator = {options.address, std::move(credentials)};
  auto link = std::make_unique<Attendance>(
      hello, std::make_unique<GrpcDialer>(coordinator),
      std::make_unique<GrpcPolicyWriter>(coordinator, hello.job, hello.worker));
  const absl::Status status = link->AwaitWelcome(options.connect_timeout);
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat("cannot reach the coordinator at ",
                                               options.address, ": ", status.message(),
                                               "; is it running?"));
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  return link;
}

}  // namespace lockstep
