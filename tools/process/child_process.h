// ChildProcess: a program that this process starts, watches and ends.
//
// A child never outlives its parent: the kernel kills it when the parent dies,
// however that happens. Children run in process groups of their own, so that a
// Ctrl-C reaches only the parent, which then ends them in order.
// Used by one thread; start children from a thread that lives as long as they do.
#ifndef LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_
#define LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep {

struct ChildOptions {
  std::string program;
  std::vector<std::string> arguments;  // without the program's name
  std::map<std::string, std::string> environment;  // added to this process's
  std::string output_file;  // takes stdout and stderr; empty: this process's own
};

// How a process ended.
struct ChildExit {
  int code = 0;    // exit code, if signal is 0
  int signal = 0;  // that killed it, or 0
  bool ok() const { return code == 0 && signal == 0; }
  std::string ToString() const;  // "exit code 1", "killed by signal 9"
};

class ChildProcess {
 public:
  // Errors: NotFound: no such program; Internal: the system refused.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);

  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // How it ended, or nothing if it still runs after `timeout`.
  std::optional<ChildExit> Wait(absl::Duration timeout);

  void Signal(int signal);
  // Asks it to end (SIGTERM), and kills it after `grace`.
  ChildExit Stop(absl::Duration grace);

  pid_t pid() const { return pid_; }
  const std::string& program() const { return program_; }

 private:
  ChildProcess(pid_t pid, std::string program) : pid_(pid), program_(std::move(program)) {}

  pid_t pid_;
  std::string program_;
  std::optional<ChildExit> exit_;
};

// Runs a program to its end. Errors: as Start(); DeadlineExceeded: it was killed
// after `timeout`.
struct RunResult {
  ChildExit exit;
  std::string output;  // stdout and stderr
};
absl::StatusOr<RunResult> RunProgram(const ChildOptions& options, absl::Duration timeout);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_PROCESS_CHILD_PROCESS_H_
