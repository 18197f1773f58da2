#include "tools/demo/demo_run.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "lockstep/v1/job.pb.h"
#include "tools/demo/progress.h"
#include "tools/demo/run_report.h"
#include "tools/local_cluster/local_cluster.h"

namespace lockstep {
namespace {

constexpr char kJob[] = "demo";
constexpr std::int64_t kTrainingImages = 60'000;
constexpr int kMaxWorkers = 16;
constexpr absl::Duration kPoll = absl::Milliseconds(200);
constexpr absl::Duration kCtlTimeout = absl::Minutes(2);

// What a run leaves behind; an earlier run's must not be taken for this one's.
absl::Status PrepareFolder(const DemoOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make the folder ", options.out, ": ", error.message()));
  }
  std::vector<std::string> names = {"coordinator.db", "coordinator.db-wal", "coordinator.db-shm",
                                    "report.json", "report.html"};
  for (int i = 0; i < kMaxWorkers; ++i) {
    names.push_back(absl::StrCat(LocalCluster::WorkerName(i), ".json"));
  }
  for (const std::string& name : names) std::filesystem::remove(options.out + "/" + name, error);
  return absl::OkStatus();
}

absl::Status CreateJob(const DemoOptions& options, Client& client) {
  v1::JobSpec spec;
  spec.set_name(kJob);
  spec.set_min_workers(options.workers);
  for (int i = 0; i < options.workers; ++i) spec.add_workers(LocalCluster::WorkerName(i));
  spec.mutable_policy()->set_broadcast_buffers(false);
  return client.CreateJob(spec).status();
}

absl::Status StartWorkers(const DemoOptions& options, LocalCluster& cluster) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string data, FindMnist());
  const std::vector<std::string> flags = {
      "--transport",   options.transport,
      "--data",        data,
      "--model",       "conv",
      "--optimizer",   "adamw",
      "--batch",       absl::StrCat(options.batch),
      "--steps",       absl::StrCat(options.TotalSteps()),
      "--evaluate-at", absl::StrCat(options.TotalSteps() / 2),
      "--drift-every", "5"};
  for (int i = 0; i < options.workers; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(cluster.StartWorker(i, kJob, flags));
  }
  return absl::OkStatus();
}

Progress ToProgress(const v1::Job& job, const std::vector<v1::Worker>& workers,
                    std::int64_t steps) {
  Progress progress = {.step = job.step(), .steps = steps};
  const auto metric = [](const v1::Worker& worker, const char* name) {
    const auto found = worker.metrics().find(name);
    return found == worker.metrics().end() ? 0.0 : found->second;
  };
  for (const v1::Worker& worker : workers) {
    progress.loss += metric(worker, "loss") / static_cast<double>(workers.size());
    progress.images_per_second += metric(worker, "images_per_second");
    progress.revision = std::max<std::int64_t>(
        progress.revision, static_cast<std::int64_t>(metric(worker, "revision")));
    progress.synced_bytes = std::max<std::int64_t>(progress.synced_bytes, worker.sync().bytes());
  }
  return progress;
}

// The operator's part, as an operator would do it.
absl::Status ChangePolicy(const LocalCluster& cluster) {
  const std::vector<std::string> arguments = {
      "policy",          "set",  kJob,
      "--broadcast-buffers",
      "--allow",         "**.running_*",
      "--allow",         "**.num_batches_tracked",
      "--every-forwards", "0",
      "--every-steps",   "1",
      "--before-evaluation",
      "--reason",        "ranks disagree on test accuracy",
      "--wait"};
  std::cerr << "$ lockstepctl " << absl::StrJoin(arguments, " ") << "\n";
  LOCKSTEP_ASSIGN_OR_RETURN(const RunResult result, cluster.Ctl(arguments, kCtlTimeout));
  std::cerr << result.output;
  if (result.exit.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("lockstepctl failed with ", result.exit.ToString()));
}

// The first worker that failed, if any.
absl::Status CheckWorkers(LocalCluster& cluster, bool* all_done) {
  *all_done = true;
  for (int i = 0; i < cluster.workers(); ++i) {
    const std::optional<ChildExit> ended = cluster.worker(i).Wait(absl::ZeroDuration());
    if (!ended) {
      *all_done = false;
    } else if (!ended->ok()) {
      const std::string name = LocalCluster::WorkerName(i);
      return absl::InternalError(absl::StrCat(name, " ended with ", ended->ToString(), ":\n",
                                              cluster.LastWords(name)));
    }
  }
  return absl::OkStatus();
}

// Follows the run to its end and changes the policy half-way.
absl::Status Follow(const DemoOptions& options, const std::atomic<bool>& interrupted,
                    Client& client, LocalCluster& cluster) {
  ProgressLine line;
  bool changed = false;
  for (bool done = false; !done; absl::SleepFor(kPoll)) {
    if (interrupted) return absl::CancelledError("interrupted");
    LOCKSTEP_RETURN_IF_ERROR(CheckWorkers(cluster, &done));
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client.GetJob(kJob));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers(kJob));
    // Workers that have left are not listed: the last figures stay.
    if (job.step() > 0 && workers.size() == static_cast<std::size_t>(options.workers)) {
      line.Show(ToProgress(job, workers, options.TotalSteps()));
    }
    if (!changed && job.step() >= options.TotalSteps() / 2) {
      line.Finish();
      LOCKSTEP_RETURN_IF_ERROR(ChangePolicy(cluster));
      changed = true;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ReadReports(const LocalCluster& cluster) {
  std::vector<nlohmann::json> reports;
  for (int i = 0; i < cluster.workers(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadFile(cluster.ReportPath(i)));
    reports.push_back(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
  }
  return MergeReports(reports);
}

absl::StatusOr<nlohmann::json> RunOn(const DemoOptions& options,
                                     const std::atomic<bool>& interrupted,
                                     LocalCluster& cluster) {
  LOCKSTEP_RETURN_IF_ERROR(cluster.StartCoordinator());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                            Client::Connect(cluster.address()));
  LOCKSTEP_RETURN_IF_ERROR(CreateJob(options, *client));
  std::cerr << "coordinator at " << cluster.address() << "; starting " << options.workers
            << " workers over " << options.transport << ", logs in " << options.out << "\n";
  LOCKSTEP_RETURN_IF_ERROR(StartWorkers(options, cluster));
  LOCKSTEP_RETURN_IF_ERROR(Follow(options, interrupted, *client, cluster));
  return ReadReports(cluster);
}

}  // namespace

absl::Status DemoOptions::Validate() const {
  const auto refuse = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (workers < 1 || workers > kMaxWorkers) {
    return refuse("--workers must be from 1 to ", kMaxWorkers, ", not ", workers);
  }
  if (transport != "shm" && transport != "gloo") {
    return refuse("--transport must be shm or gloo, not '", transport, "'");
  }
  if (steps < 0 || steps == 1) return refuse("--steps must be 0 or at least 2, not ", steps);
  if (batch < 2) return refuse("--batch must be at least 2 for BatchNorm, not ", batch);
  if (out.empty()) return refuse("--out must name a folder");
  return absl::OkStatus();
}

std::int64_t DemoOptions::TotalSteps() const {
  const std::int64_t per_step = static_cast<std::int64_t>(batch) * workers;
  return steps > 0 ? steps : (kTrainingImages + per_step - 1) / per_step;
}

absl::StatusOr<nlohmann::json> RunDemo(const DemoOptions& options,
                                       const std::atomic<bool>& interrupted) {
  LOCKSTEP_RETURN_IF_ERROR(options.Validate());
  LOCKSTEP_RETURN_IF_ERROR(PrepareFolder(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> cluster,
                            LocalCluster::Create(options.out));
  absl::StatusOr<nlohmann::json> report = RunOn(options, interrupted, *cluster);
  cluster->Stop();
  return report;
}

}  // namespace lockstep
