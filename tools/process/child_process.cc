#include "tools/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lockstep {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (!added.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

// Only calls that are safe between fork and exec of a threaded process.
[[noreturn]] void Exec(pid_t parent, int output, char** arguments, char** environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  execve(arguments[0], arguments, environment);
  _exit(127);
}

absl::StatusOr<pid_t> Fork(const ChildOptions& options, int output) {
  if (access(options.program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot run ", options.program, ": ", strerror(errno)));
  }
  std::vector<std::string> arguments = {options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = Environment(options.environment);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError(absl::StrCat("fork: ", strerror(errno)));
  if (pid == 0) {
    Exec(parent, output, const_cast<char**>(argv.data()), const_cast<char**>(envp.data()));
  }
  return pid;
}

std::string ReadFrom(int fd) {
  std::string text;
  char piece[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, piece, sizeof(piece))) > 0;) text.append(piece, n);
  return text;
}

}  // namespace

std::string ChildExit::ToString() const {
  return signal != 0 ? absl::StrCat("killed by signal ", signal)
                     : absl::StrCat("exit code ", code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  int output = -1;
  if (!options.output_file.empty()) {
    output = open(options.output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (output < 0) {
      return absl::InternalError(
          absl::StrCat("cannot write ", options.output_file, ": ", strerror(errno)));
    }
  }
  const absl::StatusOr<pid_t> pid = Fork(options, output);
  if (output >= 0) close(output);
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<ChildProcess>(new ChildProcess(*pid, options.program));
}

ChildProcess::~ChildProcess() {
  if (Wait(absl::ZeroDuration())) return;
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

std::optional<ChildExit> ChildProcess::Wait(absl::Duration timeout) {
  if (exit_) return exit_;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (fd >= 0) {
    pollfd poll_fd = {.fd = fd, .events = POLLIN, .revents = 0};
    const absl::Time end = absl::Now() + timeout;
    // poll takes an int of milliseconds; an interrupted call starts again.
    while (poll_fd.revents == 0) {
      const absl::Duration left =
          std::clamp(end - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
      poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
      if (left == absl::ZeroDuration()) break;
    }
    close(fd);
  }
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  exit_ = WIFSIGNALED(status) ? ChildExit{.code = 0, .signal = WTERMSIG(status)}
                              : ChildExit{.code = WEXITSTATUS(status), .signal = 0};
  return exit_;
}

void ChildProcess::Signal(int signal) {
  if (!exit_) kill(pid_, signal);
}

ChildExit ChildProcess::Stop(absl::Duration grace) {
  Signal(SIGTERM);
  if (const std::optional<ChildExit> ended = Wait(grace)) return *ended;
  Signal(SIGKILL);
  return *Wait(absl::InfiniteDuration());
}

absl::StatusOr<RunResult> RunProgram(const ChildOptions& options, absl::Duration timeout) {
  // A file of this process: memory, gone with the last descriptor.
  const int memory = memfd_create("output", MFD_CLOEXEC);
  if (memory < 0) return absl::InternalError(absl::StrCat("memfd_create: ", strerror(errno)));
  ChildOptions into_memory = options;
  into_memory.output_file = absl::StrCat("/proc/", getpid(), "/fd/", memory);
  absl::StatusOr<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(into_memory);
  if (!child.ok()) {
    close(memory);
    return child.status();
  }
  std::optional<ChildExit> exit = (*child)->Wait(timeout);
  const bool timed_out = !exit.has_value();
  if (timed_out) exit = (*child)->Stop(absl::ZeroDuration());
  std::string output = ReadFrom(memory);
  close(memory);
  if (timed_out) {
    return absl::DeadlineExceededError(
        absl::StrCat(options.program, " did not end within ", absl::FormatDuration(timeout),
                     "; its output so far:\n", output));
  }
  return RunResult{.exit = *exit, .output = std::move(output)};
}

}  // namespace lockstep
