#include "tests/hosts/shell.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

// Reads names of files with commands from a pipe; open for both, it has no end.
constexpr char kLoop[] =
    "set -euo pipefail; exec 9<>.commands; "
    "while read -r block <&9; do source ./$block; : >$block.done; done";
constexpr absl::Duration kPoll = absl::Milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<HostShell>> HostShell::Open(
    const Network& network, const std::string& host, const std::string& directory,
    const std::map<std::string, std::string>& environment) {
  std::unique_ptr<HostShell> shell(new HostShell(directory));
  if (mkfifo((directory + "/.commands").c_str(), 0600) != 0) {
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
}

absl::Status HostShell::Type(const std::string& commands, absl::Duration timeout) {
  const std::string name = absl::StrCat(".block", ++typed_);
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(absl::StrCat(directory_, "/", name), commands));
  // Open for both, so that it does not wait for a shell that has ended.
  std::fstream(directory_ + "/.commands", std::ios::in | std::ios::out) << name << std::endl;
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
