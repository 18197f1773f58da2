// HostShell: a shell that stays open on a host, as the one a person types commands into.
//
// Variables and programs in the background stay from one block of commands to the next. All that
// was started in it ends with it. Used by one thread.
#ifndef LOCKSTEP_TESTS_HOSTS_SHELL_H_
#define LOCKSTEP_TESTS_HOSTS_SHELL_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/hosts/network.h"
#include "tools/process/child_process.h"

namespace lockstep {

class HostShell {
 public:
  // In `directory`, where the shell also keeps its own files. `environment` is added to this
  // process's. `network` outlives it.
  static absl::StatusOr<std::unique_ptr<HostShell>> Open(
      const Network& network, const std::string& host, const std::string& directory,
      const std::map<std::string, std::string>& environment);
  ~HostShell();

  // Until the last command has ended, or was put into the background. Errors: Aborted: a command
  // failed, which ends the shell; DeadlineExceeded. Both with all that was printed.
  absl::Status Type(const std::string& commands, absl::Duration timeout);

  std::string output() const;

 private:
  explicit HostShell(std::string directory) : directory_(std::move(directory)) {}

  const std::string directory_;
  int commands_ = -1;  // a pipe
  std::unique_ptr<ChildProcess> bash_;
  int typed_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_SHELL_H_
