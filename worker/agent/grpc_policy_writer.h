// Policy revisions over gRPC: the UpdateSyncPolicy call of SyncPolicyService.
#ifndef LOCKSTEP_WORKER_AGENT_GRPC_POLICY_WRITER_H_
#define LOCKSTEP_WORKER_AGENT_GRPC_POLICY_WRITER_H_

#include <string>
#include <utility>

#include "worker/agent/grpc_channel.h"
#include "worker/agent/policy_writer.h"

namespace lockstep {

// Each call has a connection of its own: calls are rare, and a new one does not
// wait for the back-off of an old one.
class GrpcPolicyWriter final : public PolicyWriter {
 public:
  // Revises the policy of `job` with `author` as who made the change.
  GrpcPolicyWriter(CoordinatorAddress coordinator, std::string job, std::string author)
      : coordinator_(std::move(coordinator)), job_(std::move(job)), author_(std::move(author)) {}

  absl::StatusOr<Revision> Revise(const SyncPolicy& policy, const std::string& reason,
                                  absl::Duration timeout) override;

 private:
  const CoordinatorAddress coordinator_;
  const std::string job_;
  const std::string author_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_GRPC_POLICY_WRITER_H_
