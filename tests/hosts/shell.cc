#include "tests/hosts/shell.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// Reads names of files with commands from a pipe.
constexpr char kLoop[] =
    "set -euo pipefail; exec 9<>.commands; "
    "while read -r block <&9; do source ./$block; : >$block.done; done";
constexpr absl::Duration kPoll = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<HostShell>> HostShell::Open(
    const Network& network, const std::string& host, const std::string& directory,
    const std::map<std::string, std::string>& environment) {
  std::unique_ptr<HostShell> shell(new HostShell(directory));
  // Open for both: neither side waits for the other, and nothing is lost that comes before it.
  const std::string pipe = directory + "/.commands";
  if (mkfifo(pipe.c_str(), 0600) != 0 ||
      (shell->commands_ = open(pipe.c_str(), O_RDWR | O_CLOEXEC)) < 0) {
    return absl::InternalError(absl::StrCat("a pipe in ", directory, ": ", strerror(errno)));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      shell->bash_,
      network.Start(host, {.program = "/bin/bash",
                           .arguments = {"-c", absl::StrCat("cd '", directory, "'; ", kLoop)},
                           .environment = environment,
                           .output_file = directory + "/.output"}));
  return shell;
}

HostShell::~HostShell() {
  // Programs in the background are of the shell's process group.
  if (bash_ != nullptr) kill(-bash_->pid(), SIGKILL);
  if (commands_ >= 0) close(commands_);
}

absl::Status HostShell::Type(const std::string& commands, absl::Duration timeout) {
  const std::string name = absl::StrCat(".block", ++typed_);
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(absl::StrCat(directory_, "/", name), commands));
  const std::string line = name + "\n";
  if (write(commands_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return absl::InternalError(absl::StrCat("a pipe in ", directory_, ": ", strerror(errno)));
  }
  for (const absl::Time end = absl::Now() + timeout; absl::Now() < end;) {
    if (std::filesystem::exists(absl::StrCat(directory_, "/", name, ".done"))) {
      return absl::OkStatus();
    }
    if (const auto exit = bash_->Wait(kPoll)) {
      return absl::AbortedError(
          absl::StrCat("a command failed, ", exit->ToString(), "; what was printed:\n", output()));
    }
  }
  return absl::DeadlineExceededError(absl::StrCat("commands did not end within ",
                                                  absl::FormatDuration(timeout),
                                                  "; what was printed:\n", output()));
}

std::string HostShell::output() const {
  return ReadFile(directory_ + "/.output").value_or("");
}

}  // namespace lockstep
