#include "tools/local_cluster/local_cluster.h"

#include <signal.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr absl::Duration kServeTimeout = absl::Seconds(30);
constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr char kCoordinator[] = "coordinator";

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Create(const std::string& directory) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  cluster->directory_ = directory;
  LOCKSTEP_ASSIGN_OR_RETURN(cluster->coordinator_program_,
                            FindRunfile("lockstep/coordinator/server/coordinator"));
  LOCKSTEP_ASSIGN_OR_RETURN(cluster->worker_program_,
                            FindRunfile("lockstep/worker/trainer/worker"));
  LOCKSTEP_ASSIGN_OR_RETURN(cluster->ctl_program_, FindRunfile("lockstep/client/ctl/lockstepctl"));
  return cluster;
}

absl::Status LocalCluster::StartCoordinator() {
  const std::string port_file = absl::StrCat(directory_, "/coordinator.address");
  std::filesystem::remove(port_file);
  KeepFormer(kCoordinator, {LogPath(kCoordinator)});
  LOCKSTEP_ASSIGN_OR_RETURN(
      coordinator_,
      ChildProcess::Start({.program = coordinator_program_,
                           .arguments = {"--listen", address_.empty() ? "127.0.0.1:0" : address_,
                                         "--store", absl::StrCat(directory_, "/coordinator.db"),
                                         "--port-file", port_file},
                           .output_file = LogPath(kCoordinator)}));
  for (absl::Duration waited; waited < kServeTimeout; waited += kPoll) {
    if (const auto ended = coordinator_->Wait(kPoll)) {
      return absl::UnavailableError(absl::StrCat("the coordinator ended with ", ended->ToString(),
                                                 ":\n", LastWords(kCoordinator)));
    }
    if (const absl::StatusOr<std::string> address = ReadFile(port_file); address.ok()) {
      address_ = std::string(absl::StripSuffix(*address, "\n"));
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat("the coordinator did not serve within ",
                                             absl::FormatDuration(kServeTimeout), ":\n",
                                             LastWords(kCoordinator)));
}

absl::Status LocalCluster::StartWorker(int index, const std::string& job,
                                       const std::vector<std::string>& flags) {
  const std::string name = WorkerName(index);
  std::vector<std::string> arguments = {"--coordinator", address_,          "--job",
                                        job,             "--name",          name,
                                        "--report",      ReportPath(index)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  KeepFormer(name, {LogPath(name), ReportPath(index)});
  if (workers() <= index) workers_.resize(index + 1);
  LOCKSTEP_ASSIGN_OR_RETURN(workers_[index],
                            ChildProcess::Start({.program = worker_program_,
                                                 .arguments = std::move(arguments),
                                                 .environment = {{"OMP_NUM_THREADS", "1"}},
                                                 .output_file = LogPath(name)}));
  return absl::OkStatus();
}

void LocalCluster::KeepFormer(const std::string& process, const std::vector<std::string>& files) {
  const int before = starts_[process]++;
  if (before == 0) return;
  std::error_code none;
  for (const std::string& file : files) {
    std::filesystem::rename(file, absl::StrCat(file, ".", before), none);
  }
}

absl::StatusOr<RunResult> LocalCluster::Ctl(const std::vector<std::string>& arguments,
                                            absl::Duration timeout) const {
  std::vector<std::string> all = {"--coordinator", address_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram({.program = ctl_program_, .arguments = std::move(all)}, timeout);
}

void LocalCluster::Stop() {
  for (const auto& worker : workers_) {
    if (worker != nullptr) worker->Signal(SIGTERM);
  }
  for (const auto& worker : workers_) {
    if (worker != nullptr) worker->Stop(kGrace);
  }
  if (coordinator_ != nullptr) coordinator_->Stop(kGrace);
}

std::string LocalCluster::WorkerName(int index) { return absl::StrCat("worker-", index); }

std::string LocalCluster::ReportPath(int index) const {
  return absl::StrCat(directory_, "/", WorkerName(index), ".json");
}

std::vector<std::string> LocalCluster::FormerReports(int index) const {
  std::vector<std::string> reports;
  const auto starts = starts_.find(WorkerName(index));
  for (int i = 1; starts != starts_.end() && i < starts->second; ++i) {
    const std::string path = absl::StrCat(ReportPath(index), ".", i);
    if (std::filesystem::exists(path)) reports.push_back(path);
  }
  return reports;
}

std::string LocalCluster::LogPath(const std::string& process) const {
  return absl::StrCat(directory_, "/", process, ".log");
}

std::string LocalCluster::LastWords(const std::string& process) const {
  constexpr std::size_t kBytes = 2000;
  const absl::StatusOr<std::string> log = ReadFile(LogPath(process));
  if (!log.ok()) return "(no log)";
  return log->size() <= kBytes ? *log : absl::StrCat("...", log->substr(log->size() - kBytes));
}

absl::StatusOr<std::string> FindMnist() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string file,
                            FindRunfile("mnist/package/data/train-images-idx3-ubyte"));
  return std::filesystem::path(file).parent_path().string();
}

std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace lockstep
