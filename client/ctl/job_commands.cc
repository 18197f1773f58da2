#include "client/ctl/job_commands.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/options.h"
#include "client/ctl/policy_files.h"
#include "client/ctl/render.h"
#include "client/ctl/wait.h"
#include "client/ctl/watch_command.h"
#include "proto/convert/convert.h"

namespace lockstep {
namespace {

ExitCode ListJobs(Context& context) {
  absl::StatusOr<std::vector<v1::Job>> jobs = context.client->ListJobs(context.call());
  if (!jobs.ok()) return Fail(jobs.status());
  if (context.json) {
    v1::ListJobsResponse all;
    for (const v1::Job& job : *jobs) *all.add_jobs() = job;
    Print(RenderJson(all));
  } else {
    Print(RenderJobs(*jobs, context.color));
  }
  return ExitCode::kOk;
}

struct CreateFlags {
  std::string name;
  int min_workers = 1;
  int max_workers = 0;
  std::vector<std::string> workers;
  std::optional<absl::Duration> join_window;
  std::optional<absl::Duration> lease;
  std::optional<absl::Duration> ready_timeout;
  int optimizer_replicas = 1;
  std::optional<absl::Duration> stall_timeout;
  std::string policy_file;
};

ExitCode CreateJob(Context& context, const CreateFlags& flags) {
  v1::JobSpec spec;
  spec.set_name(flags.name);
  spec.set_min_workers(flags.min_workers);
  spec.set_max_workers(flags.max_workers);
  for (const std::string& worker : flags.workers) spec.add_workers(worker);
  if (flags.join_window) *spec.mutable_join_window() = ToProto(*flags.join_window);
  if (flags.lease) *spec.mutable_lease() = ToProto(*flags.lease);
  if (flags.ready_timeout) *spec.mutable_ready_timeout() = ToProto(*flags.ready_timeout);
  if (flags.stall_timeout) *spec.mutable_stall_timeout() = ToProto(*flags.stall_timeout);
  spec.set_optimizer_replicas(flags.optimizer_replicas);
  if (!flags.policy_file.empty()) {
    absl::StatusOr<v1::SyncPolicy> policy = ReadPolicy(flags.policy_file);
    if (!policy.ok()) return Fail(policy.status());
    *spec.mutable_policy() = *std::move(policy);
  }
  const absl::StatusOr<v1::Job> job = context.client->CreateJob(spec, context.call());
  if (!job.ok()) return Fail(job.status());
  Print(context.json ? RenderJson(*job) : absl::StrCat("created job ", flags.name, "\n"));
  return ExitCode::kOk;
}

ExitCode ShowJob(Context& context, const std::string& name) {
  const absl::StatusOr<v1::Job> job = context.client->GetJob(name, context.call());
  if (!job.ok()) return Fail(job.status());
  const auto workers = context.client->ListWorkers(name, context.call());
  if (!workers.ok()) return Fail(workers.status());
  if (context.json) {
    // The same as a line of `job watch`.
    v1::WatchJobResponse all;
    *all.mutable_job() = *job;
    for (const v1::Worker& worker : *workers) *all.add_workers() = worker;
    Print(RenderJson(all));
    return ExitCode::kOk;
  }
  Print(absl::StrCat(RenderJob(*job, context.color), "\n",
                     RenderWorkers(*workers, context.color)));
  return ExitCode::kOk;
}

ExitCode DeleteJob(Context& context, const std::string& name) {
  const absl::Status deleted = context.client->DeleteJob(name, context.call());
  if (!deleted.ok()) return Fail(deleted);
  Print(context.json ? "{}\n" : absl::StrCat("deleted job ", name, "\n"));
  return ExitCode::kOk;
}

ExitCode ListWorkers(Context& context, const std::string& name) {
  const auto workers = context.client->ListWorkers(name, context.call());
  if (!workers.ok()) return Fail(workers.status());
  if (context.json) {
    v1::ListWorkersResponse all;
    for (const v1::Worker& worker : *workers) *all.add_workers() = worker;
    Print(RenderJson(all));
  } else {
    Print(RenderWorkers(*workers, context.color));
  }
  return ExitCode::kOk;
}

ExitCode ShowPlan(Context& context, const std::string& name) {
  const auto plan = context.client->GetShardPlan(name, context.call());
  if (!plan.ok()) return Fail(plan.status());
  Print(context.json ? RenderJson(*plan) : RenderShardPlan(*plan));
  return ExitCode::kOk;
}

struct DrainFlags {
  std::string job;
  std::string worker;
  bool allow_waiting = false;
  bool wait = false;
};

ExitCode Drain(Context& context, const DrainFlags& flags) {
  v1::DrainWorkerRequest request;
  request.set_job(flags.job);
  request.set_worker(flags.worker);
  request.set_allow_waiting(flags.allow_waiting);
  const absl::StatusOr<std::int64_t> number = context.client->DrainWorker(request, context.call());
  if (!number.ok()) return Fail(number.status());
  if (flags.wait) {
    const ExitCode waited = AwaitAbsence(context, flags.job, flags.worker);
    if (waited != ExitCode::kOk) return waited;
  }
  if (context.json) {
    v1::DrainWorkerResponse response;
    response.set_log_number(*number);
    Print(RenderJson(response));
  } else {
    Print(absl::StrCat("drain of ", flags.worker, " is entry ", *number, " of the control log",
                       flags.wait ? "; it takes no more part\n" : "\n"));
  }
  return ExitCode::kOk;
}

struct CheckpointFlags {
  std::string job;
  bool wait = false;
};

ExitCode Checkpoint(Context& context, const CheckpointFlags& flags) {
  const absl::StatusOr<std::int64_t> number =
      context.client->CheckpointNow(flags.job, context.call());
  if (!number.ok()) return Fail(number.status());
  if (flags.wait) {
    const ExitCode waited = AwaitEntry(context, flags.job, *number);
    if (waited != ExitCode::kOk) return waited;
  }
  if (context.json) {
    v1::CheckpointNowResponse response;
    response.set_log_number(*number);
    Print(RenderJson(response));
  } else {
    Print(absl::StrCat("checkpoint is entry ", *number, " of the control log",
                       flags.wait ? " and took effect on all workers\n" : "\n"));
  }
  return ExitCode::kOk;
}

// A command whose only argument is the job.
void AddOnJob(CLI::App* app, const std::string& name, const std::string& help, Context* context,
              Command* chosen, ExitCode (*run)(Context&, const std::string&)) {
  CLI::App* command = app->add_subcommand(name, help);
  auto job = std::make_shared<std::string>();
  AddJob(command, job.get());
  command->callback([=] { *chosen = [=] { return run(*context, *job); }; });
  AddExample(command, absl::StrCat(app->get_parent() == nullptr ? "" : app->get_name() + " ",
                                   name, " mnist"));
}

void AddCreate(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand("create", "make a job that workers can attend");
  auto flags = std::make_shared<CreateFlags>();
  command->add_option("job", flags->name, "the new job's name")->required();
  command->add_option("--min-workers", flags->min_workers, "an epoch needs at least this many")
      ->capture_default_str();
  command->add_option("--max-workers", flags->max_workers,
                      "at most this many take part; default: --min-workers");
  command->add_option("--worker", flags->workers,
                      "name that may attend (repeatable); default: any")
      ->allow_extra_args(false);
  AddDuration(command, "--join-window", &flags->join_window,
              "time to wait for more than the least number of workers; default: 5s");
  AddDuration(command, "--lease", &flags->lease,
              "silence that ends a worker's membership; default: 10s");
  AddDuration(command, "--ready-timeout", &flags->ready_timeout,
              "time for all members to get ready; default: 1m");
  AddDuration(command, "--stall-timeout", &flags->stall_timeout,
              "a worker that makes no step for so long while others wait for it is put out; 0: "
              "never; default: 2m");
  command->add_option("--optimizer-replicas", flags->optimizer_replicas,
                      "workers that keep each shard's optimizer state: 2, so that one may be "
                      "lost, or 1")
      ->capture_default_str();
  command->add_option("--policy", flags->policy_file,
                      "file with the first sync policy, textproto or JSON; '-': standard input")
      ->type_name(kFileType);
  command->callback([=] { *chosen = [=] { return CreateJob(*context, *flags); }; });
  AddExample(command, "job create mnist --min-workers 2 --max-workers 4 --optimizer-replicas 2");
}

void AddDrain(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command = app->add_subcommand(
      "drain", "have one worker stop between two steps; the others go on without it");
  auto flags = std::make_shared<DrainFlags>();
  AddJob(command, &flags->job);
  command->add_option("worker", flags->worker, "the worker's name")
      ->required()
      ->type_name(kWorkerType);
  command->add_flag("--allow-waiting", flags->allow_waiting,
                    "also if too few workers for an epoch are left");
  command->add_flag("--wait", flags->wait,
                    "wait until it takes no more part, up to --timeout (1m)");
  command->callback([=] { *chosen = [=] { return Drain(*context, *flags); }; });
  AddExample(command, "job drain mnist w2 --wait");
}

void AddCheckpoint(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* command =
      app->add_subcommand("checkpoint", "have the workers make a checkpoint between two steps");
  auto flags = std::make_shared<CheckpointFlags>();
  AddJob(command, &flags->job);
  command->add_flag("--wait", flags->wait,
                    "wait until it took effect on all workers, up to --timeout (1m)");
  command->callback([=] { *chosen = [=] { return Checkpoint(*context, *flags); }; });
  AddExample(command, "job checkpoint mnist --wait --timeout 5m");
}

}  // namespace

void AddJobCommands(CLI::App* app, Context* context, Command* chosen) {
  CLI::App* job = app->add_subcommand("job", "jobs: list, create, status, watch, drain, "
                                             "checkpoint, delete");
  job->require_subcommand(1);
  CLI::App* list = job->add_subcommand("list", "all jobs");
  list->callback([=] { *chosen = [=] { return ListJobs(*context); }; });
  AddExample(list, "job list");
  AddCreate(job, context, chosen);
  AddOnJob(job, "status", "one job and its workers", context, chosen, ShowJob);
  AddWatchCommand(job, context, chosen);
  AddDrain(job, context, chosen);
  AddCheckpoint(job, context, chosen);
  AddOnJob(job, "delete", "forget a job that no worker attends", context, chosen, DeleteJob);
  AddOnJob(app, "workers", "the workers of a job", context, chosen, ListWorkers);
  AddOnJob(app, "plan", "which rank owns which shard", context, chosen, ShowPlan);
}

}  // namespace lockstep
