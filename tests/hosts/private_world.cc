#include "tests/hosts/private_world.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID;

absl::Status Refused(absl::string_view what) {
  return absl::PermissionDeniedError(absl::StrCat(what, ": ", strerror(errno)));
}

// Not WriteFile(): the kernel's files are not replaced.
absl::Status Tell(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool is_told = fd >= 0 && write(fd, text.data(), text.size()) ==
                                      static_cast<ssize_t>(text.size());
  const absl::Status status = is_told ? absl::OkStatus() : Refused(path);
  if (fd >= 0) close(fd);
  return status;
}

absl::Status LeaveTheWorld() {
  if (const int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC); tun >= 0) {
    close(tun);
  } else {
    return Refused("cannot open /dev/net/tun, of which the links between hosts are made");
  }
  if (unshare(kNamespaces) == 0) return absl::OkStatus();
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER | kNamespaces) != 0) {
    return Refused("the system allows neither a network namespace (as root) nor a user namespace");
  }
  LOCKSTEP_RETURN_IF_ERROR(Tell("/proc/self/setgroups", "deny"));
  LOCKSTEP_RETURN_IF_ERROR(Tell("/proc/self/uid_map", absl::StrCat("0 ", user, " 1")));
  return Tell("/proc/self/gid_map", absl::StrCat("0 ", group, " 1"));
}

// In the first process of the new world.
absl::Status SettleIn() {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", 0, nullptr) != 0) {
    return Refused("cannot mount /proc for a namespace of processes");
  }
  return absl::OkStatus();
}

}  // namespace

int RunInPrivateWorld(const std::function<int(const absl::Status&)>& run) {
  absl::Status status = LeaveTheWorld();
  const pid_t parent = getpid();
  const pid_t child = fork();
  LOCKSTEP_CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (status.ok()) {
      status = SettleIn();
    } else if (getppid() != parent) {
      _exit(1);
    }
    exit(run(status));
  }
  int how = 0;
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

}  // namespace lockstep
