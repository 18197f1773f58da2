#include "tests/bench/coordinator/coordinator_process.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/bench/resident.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr absl::Duration kServeTimeout = absl::Seconds(60);
constexpr absl::Duration kPoll = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<Cores> FindCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return absl::InternalError(absl::StrCat("sched_getaffinity: ", strerror(errno)));
  }
  std::vector<int> found;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) found.push_back(core);
  }
  if (found.size() == 1) return Cores{found.front(), found};
  return Cores{found.front(), {found.begin() + 1, found.end()}};
}

absl::Status PinThisThread(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("sched_setaffinity: ", strerror(errno)));
}

absl::Status AllowOpenFiles(std::uint64_t files) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= files) return absl::OkStatus();
  const std::uint64_t hard = limit.rlim_max;
  limit.rlim_cur = files;
  if (hard >= files && setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(files, " open files are needed, and the hard limit is ", hard,
                   "; raise it (ulimit -Hn), or have more workers share a connection "
                   "(--workers-per-connection)"));
}

CoordinatorProcess::CoordinatorProcess(std::string directory, TlsFiles tls, Cores cores)
    : directory_(std::move(directory)), tls_(std::move(tls)), cores_(std::move(cores)) {}

absl::Status CoordinatorProcess::Start() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string program,
                            FindRunfile("lockstep/coordinator/server/coordinator"));
  const std::string port_file = directory_ + "/address";
  const std::string log = absl::StrCat(directory_, "/coordinator-", ++starts_, ".log");
  std::filesystem::remove(port_file);
  ChildOptions options = {.program = program,
                          .arguments = {"--listen", address_.empty() ? "127.0.0.1:0" : address_,
                                        "--store", directory_ + "/coordinator.db", "--port-file",
                                        port_file},
                          .output_file = log};
  if (!tls_.empty()) {
    for (const auto& [flag, path] : {std::pair("--tls-certificate", tls_.certificate),
                                     std::pair("--tls-key", tls_.key),
                                     std::pair("--tls-authorities", tls_.authorities)}) {
      options.arguments.insert(options.arguments.end(), {flag, path});
    }
  }
  // A child begins on its parent's cores.
  LOCKSTEP_RETURN_IF_ERROR(PinThisThread({cores_.coordinator}));
  absl::StatusOr<std::unique_ptr<ChildProcess>> started = ChildProcess::Start(options);
  LOCKSTEP_RETURN_IF_ERROR(PinThisThread(cores_.workers));
  LOCKSTEP_RETURN_IF_ERROR(started.status());
  process_ = *std::move(started);
  for (absl::Duration waited; waited < kServeTimeout; waited += kPoll) {
    if (const auto ended = process_->Wait(kPoll)) {
      return absl::UnavailableError(
          absl::StrCat("the coordinator ended with ", ended->ToString(), "; ", log, " says why"));
    }
    if (const absl::StatusOr<std::string> address = ReadFile(port_file); address.ok()) {
      address_ = std::string(absl::StripSuffix(*address, "\n"));
      return absl::OkStatus();
    }
  }
  return absl::UnavailableError(absl::StrCat("the coordinator did not serve within ",
                                             absl::FormatDuration(kServeTimeout), "; see ", log));
}

void CoordinatorProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait(absl::InfiniteDuration());
}

std::string CoordinatorProcess::Proc(const std::string& file) const {
  return ReadFile(absl::StrCat("/proc/", process_->pid(), "/", file)).value_or("");
}

std::int64_t CoordinatorProcess::resident_bytes() const {
  return FieldBytes(Proc("status"), "VmRSS");
}

std::int64_t CoordinatorProcess::peak_bytes() const { return FieldBytes(Proc("status"), "VmHWM"); }

double CoordinatorProcess::cpu_seconds() const {
  // Behind the program's name, which may hold spaces; proc(5) counts from 1.
  const std::string stat = Proc("stat");
  const std::size_t name_end = std::min(stat.size(), stat.rfind(')') + 1);
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end), ' ', absl::SkipEmpty());
  constexpr std::size_t kUserTime = 14 - 3, kSystemTime = 15 - 3;
  std::int64_t user = 0, system = 0;
  if (fields.size() <= kSystemTime || !absl::SimpleAtoi(fields[kUserTime], &user) ||
      !absl::SimpleAtoi(fields[kSystemTime], &system)) {
    return 0;
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace lockstep
