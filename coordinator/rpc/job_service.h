// JobService: jobs, their workers and their shard plan, over gRPC.
//
// Decodes, validates, posts and answers; no rule lives here.
#ifndef LOCKSTEP_COORDINATOR_RPC_JOB_SERVICE_H_
#define LOCKSTEP_COORDINATOR_RPC_JOB_SERVICE_H_

#include "coordinator/rpc/gate.h"
#include "coordinator/runtime/coordinator.h"
#include "grpcpp/grpcpp.h"
#include "lockstep/v1/job.grpc.pb.h"

namespace lockstep {

// Thread-safe. `coordinator` and `gate` outlive it.
class JobService final : public v1::JobService::CallbackService {
 public:
  JobService(Coordinator* coordinator, Gate* gate) : coordinator_(coordinator), gate_(gate) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::CreateJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetShardPlan(grpc::CallbackServerContext* context,
                                         const v1::GetShardPlanRequest* request,
                                         v1::GetShardPlanResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* CheckpointNow(grpc::CallbackServerContext* context,
                                          const v1::CheckpointNowRequest* request,
                                          v1::CheckpointNowResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;

 private:
  Coordinator* const coordinator_;
  Gate* const gate_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_JOB_SERVICE_H_
