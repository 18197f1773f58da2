// LocalCluster: one coordinator and its workers as processes on loopback.
//
// For the demo and for tests of real processes. It starts, names and ends them;
// it knows nothing of what they say to each other. Used by one thread.
#ifndef LOCKSTEP_TOOLS_LOCAL_CLUSTER_LOCAL_CLUSTER_H_
#define LOCKSTEP_TOOLS_LOCAL_CLUSTER_LOCAL_CLUSTER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/process/child_process.h"

namespace lockstep {

class LocalCluster {
 public:
  // `directory` exists; store, logs and reports go there.
  // Errors: NotFound: a program was not built.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Create(const std::string& directory);

  // Starts the coordinator and waits until it serves. Called again after it
  // ended: serves again from the same store on the same port.
  // Errors: Unavailable: it ended or did not serve in time; with its last words.
  absl::Status StartCoordinator();

  // Starts "worker-<index>" of `job` with these further flags. What the process before it
  // with that name has left is kept, with ".1", ".2", ... behind the name; see FormerReports().
  absl::Status StartWorker(int index, const std::string& job,
                           const std::vector<std::string>& flags);

  // lockstepctl with these arguments, to its end, output included.
  absl::StatusOr<RunResult> Ctl(const std::vector<std::string>& arguments,
                                absl::Duration timeout) const;

  // Ends everything: workers first, then the coordinator.
  void Stop();

  const std::string& address() const { return address_; }  // "127.0.0.1:port"
  ChildProcess& coordinator() { return *coordinator_; }
  ChildProcess& worker(int index) { return *workers_.at(index); }
  int workers() const { return static_cast<int>(workers_.size()); }

  static std::string WorkerName(int index);
  std::string ReportPath(int index) const;
  // What processes of that name that ended before the last one have left, oldest first.
  std::vector<std::string> FormerReports(int index) const;
  std::string LogPath(const std::string& process) const;
  // The end of a process's log, for messages.
  std::string LastWords(const std::string& process) const;

 private:
  LocalCluster() = default;

  // Before `process` is started: gives way to its files.
  void KeepFormer(const std::string& process, const std::vector<std::string>& files);

  std::string directory_;
  std::string coordinator_program_;
  std::string worker_program_;
  std::string ctl_program_;
  std::string address_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  std::map<std::string, int> starts_;  // by process
};

// The folder of MNIST's idx files that the build brought.
absl::StatusOr<std::string> FindMnist();

// Names of what there is in shared memory now, of any process.
std::set<std::string> SharedMemoryFiles();

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_LOCAL_CLUSTER_LOCAL_CLUSTER_H_
