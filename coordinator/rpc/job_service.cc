#include "coordinator/rpc/job_service.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "coordinator/convert/job_spec.h"
#include "coordinator/rpc/completion.h"
#include "coordinator/rpc/page.h"
#include "coordinator/rpc/read_job.h"
#include "coordinator/rpc/view_convert.h"
#include "coordinator/rpc/watch_stream.h"
#include "security/caller.h"

namespace lockstep {
namespace {

constexpr PageLimits kJobPages = {.default_size = 100, .max_size = 1000};
constexpr PageLimits kWorkerPages = {.default_size = 1000, .max_size = 1000};

// Those that the caller may use.
void FillJobs(const ClusterState& state, const Caller& caller, const Page& page,
              v1::ListJobsResponse* response) {
  PageFill fill(page);
  for (auto it = state.jobs.upper_bound(page.after); it != state.jobs.end(); ++it) {
    if (!CheckMayUse(caller, it->first).ok()) continue;
    if (!fill.Fits()) {
      response->set_next_page_token(PageToken("jobs", response->jobs().rbegin()->spec().name()));
      return;
    }
    v1::Job* job = response->add_jobs();
    *job = ViewOfJob(it->second);
    fill.Add(job->ByteSizeLong());
  }
}

void FillWorkers(const JobState& job, const Page& page, v1::ListWorkersResponse* response) {
  PageFill fill(page);
  for (auto it = job.workers.upper_bound(page.after); it != job.workers.end(); ++it) {
    if (!fill.Fits()) {
      response->set_next_page_token(PageToken("workers", std::prev(it)->first));
      return;
    }
    v1::Worker* worker = response->add_workers();
    *worker = ViewOfWorker(job, it->second);
    fill.Add(worker->ByteSizeLong());
  }
}

// Has the coordinator append an entry to the job's log, and answers with its number.
template <typename Response>
grpc::ServerUnaryReactor* AppendEntry(Coordinator* coordinator,
                                      grpc::CallbackServerContext* context,
                                      const absl::Status& name, Request request,
                                      Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  if (!name.ok()) {
    completion->Finish(name);
    return reactor;
  }
  coordinator->Submit(std::move(request),
                      [response, completion](const absl::StatusOr<Reply>& reply) {
                        if (reply.ok()) {
                          response->set_log_number(std::get<LogNumber>(*reply).value());
                        }
                        completion->Finish(reply.status());
                      });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* JobService::CreateJob(grpc::CallbackServerContext* context,
                                                const v1::CreateJobRequest* request,
                                                v1::CreateJobResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->spec().name())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  absl::StatusOr<JobSpec> spec = FromProto(request->spec());
  if (!spec.ok()) {
    completion->Finish(spec.status());
    return reactor;
  }
  const std::string name = spec->name;
  coordinator_->Submit(lockstep::CreateJob{*std::move(spec)}, [this, name, response, completion](
                                                        const absl::StatusOr<Reply>& reply) {
    if (!reply.ok()) {
      completion->Finish(reply.status());
      return;
    }
    ReadJob(coordinator_, name, completion, [response](const JobState& job) {
      *response->mutable_job() = ViewOfJob(job);
      return absl::OkStatus();
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request,
                                             v1::GetJobResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  ReadJob(coordinator_, request->job(), std::make_shared<Completion>(reactor),
          [response](const JobState& job) {
            *response->mutable_job() = ViewOfJob(job);
            return absl::OkStatus();
          });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, "")) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  const absl::StatusOr<Page> page =
      ParsePage("jobs", kJobPages, request->page_size(), request->page_token());
  if (!page.ok()) {
    completion->Finish(page.status());
    return reactor;
  }
  coordinator_->Read([=, this, page = *page, caller = gate_->Identify(*context).caller](
                         const ClusterState* state) {
    if (state == nullptr) {
      completion->Finish(NoState(*coordinator_));
      return;
    }
    FillJobs(*state, caller, page, response);
    completion->Finish(absl::OkStatus());
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::DeleteJob(grpc::CallbackServerContext* context,
                                                const v1::DeleteJobRequest* request,
                                                v1::DeleteJobResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  const absl::Status name = CheckJobName(request->job());
  if (!name.ok()) {
    completion->Finish(name);
    return reactor;
  }
  coordinator_->Submit(lockstep::DeleteJob{request->job()},
                       [completion](const absl::StatusOr<Reply>& reply) {
                         completion->Finish(reply.status());
                       });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ListWorkers(grpc::CallbackServerContext* context,
                                                  const v1::ListWorkersRequest* request,
                                                  v1::ListWorkersResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto completion = std::make_shared<Completion>(reactor);
  const absl::StatusOr<Page> page =
      ParsePage("workers", kWorkerPages, request->page_size(), request->page_token());
  if (!page.ok()) {
    completion->Finish(page.status());
    return reactor;
  }
  ReadJob(coordinator_, request->job(), completion, [page = *page, response](const JobState& job) {
    FillWorkers(job, page, response);
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetShardPlan(grpc::CallbackServerContext* context,
                                                   const v1::GetShardPlanRequest* request,
                                                   v1::GetShardPlanResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  ReadJob(coordinator_, request->job(), std::make_shared<Completion>(reactor),
          [response](const JobState& job) {
            absl::StatusOr<v1::GetShardPlanResponse> plan = ViewOfShardPlan(job);
            if (plan.ok()) *response = *std::move(plan);
            return plan.status();
          });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::DrainWorker(grpc::CallbackServerContext* context,
                                                  const v1::DrainWorkerRequest* request,
                                                  v1::DrainWorkerResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  return AppendEntry(coordinator_, context, CheckJobName(request->job()),
                     lockstep::DrainWorker{.job = request->job(),
                                           .worker = request->worker(),
                                           .allow_waiting = request->allow_waiting()},
                     response);
}

grpc::ServerUnaryReactor* JobService::CheckpointNow(grpc::CallbackServerContext* context,
                                                    const v1::CheckpointNowRequest* request,
                                                    v1::CheckpointNowResponse* response) {
  if (auto* refused = Refuse(gate_, context, *request, request->job())) return refused;
  return AppendEntry(coordinator_, context, CheckJobName(request->job()),
                     lockstep::CheckpointNow{request->job()}, response);
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobService::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  return NewWatchStream(coordinator_, gate_, *context, *request);
}

}  // namespace lockstep
