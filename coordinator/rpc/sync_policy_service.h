// SyncPolicyService: reads and changes what a job synchronises, over gRPC.
//
// Decodes, validates, posts and answers; no rule lives here.
#ifndef LOCKSTEP_COORDINATOR_RPC_SYNC_POLICY_SERVICE_H_
#define LOCKSTEP_COORDINATOR_RPC_SYNC_POLICY_SERVICE_H_

#include "coordinator/rpc/gate.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/policy.grpc.pb.h"

namespace lockstep {

// Thread-safe. `coordinator` and `gate` outlive it.
class SyncPolicyService final : public v1::SyncPolicyService::CallbackService {
 public:
  SyncPolicyService(Coordinator* coordinator, Gate* gate) : coordinator_(coordinator), gate_(gate) {}

  grpc::ServerUnaryReactor* GetSyncPolicy(grpc::CallbackServerContext* context,
                                          const v1::GetSyncPolicyRequest* request,
                                          v1::GetSyncPolicyResponse* response) override;
  grpc::ServerUnaryReactor* UpdateSyncPolicy(grpc::CallbackServerContext* context,
                                             const v1::UpdateSyncPolicyRequest* request,
                                             v1::UpdateSyncPolicyResponse* response) override;
  grpc::ServerUnaryReactor* PreviewSyncPolicy(grpc::CallbackServerContext* context,
                                              const v1::PreviewSyncPolicyRequest* request,
                                              v1::PreviewSyncPolicyResponse* response) override;
  grpc::ServerUnaryReactor* ListSyncPolicyRevisions(
      grpc::CallbackServerContext* context, const v1::ListSyncPolicyRevisionsRequest* request,
      v1::ListSyncPolicyRevisionsResponse* response) override;
  grpc::ServerUnaryReactor* SyncNow(grpc::CallbackServerContext* context,
                                    const v1::SyncNowRequest* request,
                                    v1::SyncNowResponse* response) override;

 private:
  Coordinator* const coordinator_;
  Gate* const gate_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_SYNC_POLICY_SERVICE_H_
