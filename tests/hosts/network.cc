#include "tests/hosts/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/hosts/interfaces.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr char kBridge[] = "bridge";
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPoll = absl::Milliseconds(2);

int CurrentNamespace() {
  const int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  LOCKSTEP_CHECK(fd >= 0);
  return fd;
}

// This thread's network is another one, as long as it lives.
class InNamespace {
 public:
  InNamespace(int there, int home) : home_(home) {
    LOCKSTEP_CHECK(setns(there, CLONE_NEWNET) == 0);
  }
  ~InNamespace() { LOCKSTEP_CHECK(setns(home_, CLONE_NEWNET) == 0); }

 private:
  const int home_;
};

// How often a line of `log` is `word`.
int Count(const std::string& log, absl::string_view word) {
  int count = 0;
  const absl::StatusOr<std::string> text = ReadFile(log);
  for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    count += line == word;
  }
  return count;
}

absl::Status AwaitWord(const std::string& log, absl::string_view word, int times) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; absl::SleepFor(kPoll)) {
    if (Count(log, word) >= times) return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the wire with the log ", log, " did not say '", word,
                                          "': ", ReadFile(log).value_or("")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    const std::string& directory, const std::map<std::string, std::string>& addresses,
    const LineQuality& quality) {
  std::unique_ptr<Network> network(new Network());
  network->home_ = CurrentNamespace();
  LOCKSTEP_RETURN_IF_ERROR(BringUp("lo"));
  LOCKSTEP_RETURN_IF_ERROR(AddBridge(kBridge));
  LOCKSTEP_RETURN_IF_ERROR(BringUp(kBridge));
  int seed = 0;
  for (const auto& [name, address] : addresses) {
    LOCKSTEP_RETURN_IF_ERROR(network->Add(directory, name, address, quality, ++seed));
  }
  return network;
}

absl::Status Network::Add(const std::string& directory, const std::string& name,
                          const std::string& address, const LineQuality& quality, int seed) {
  Host& host = hosts_[name];
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string program,
                            FindRunfile("lockstep/tests/hosts/wire/wire"));
  if (unshare(CLONE_NEWNET) != 0) {
    return absl::InternalError(absl::StrCat("a network namespace: ", strerror(errno)));
  }
  host.name_space = CurrentNamespace();
  absl::StatusOr<int> inside = OpenTap("eth0");
  absl::Status status = inside.status();
  if (status.ok()) status = SetAddress("eth0", address);
  if (status.ok()) status = BringUp("eth0");
  if (status.ok()) status = BringUp("lo");
  LOCKSTEP_CHECK(setns(home_, CLONE_NEWNET) == 0);
  LOCKSTEP_RETURN_IF_ERROR(status);

  LOCKSTEP_ASSIGN_OR_RETURN(const int outside, OpenTap(name));
  LOCKSTEP_RETURN_IF_ERROR(PlugIn(kBridge, name));
  LOCKSTEP_RETURN_IF_ERROR(BringUp(name));
  host.log = absl::StrCat(directory, "/wire-", name, ".log");
  absl::StatusOr<std::unique_ptr<ChildProcess>> wire = ChildProcess::Start(
      {.program = program,
       .arguments = {"--from", absl::StrCat(*inside), "--to", absl::StrCat(outside), "--delay",
                     absl::FormatDuration(quality.delay), "--jitter",
                     absl::FormatDuration(quality.jitter), "--loss", absl::StrCat(quality.loss),
                     "--seed", absl::StrCat(seed)},
       .output_file = host.log});
  // The wire alone keeps the devices, and no program that is started later.
  close(*inside);
  close(outside);
  LOCKSTEP_RETURN_IF_ERROR(wire.status());
  host.wire = *std::move(wire);
  return AwaitWord(host.log, "ready", 1);
}

Network::~Network() {
  for (auto& [name, host] : hosts_) {
    host.wire.reset();
    if (host.name_space >= 0) close(host.name_space);
  }
  const absl::Status removed = RemoveBridge(kBridge);
  LOCKSTEP_CHECK(removed.ok());
  close(home_);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> Network::Start(const std::string& host,
                                                             const ChildOptions& options) const {
  const InNamespace there(hosts_.at(host).name_space, home_);
  return ChildProcess::Start(options);
}

absl::StatusOr<RunResult> Network::Run(const std::string& host, const ChildOptions& options,
                                       absl::Duration timeout) const {
  const InNamespace there(hosts_.at(host).name_space, home_);
  return RunProgram(options, timeout);
}

absl::Status Network::Cut(const std::string& host) {
  Host& cut = hosts_.at(host);
  cut.wire->Signal(SIGUSR1);
  return AwaitWord(cut.log, "cut", ++cut.cuts);
}

absl::Status Network::Heal(const std::string& host) {
  Host& healed = hosts_.at(host);
  healed.wire->Signal(SIGUSR2);
  return AwaitWord(healed.log, "healed", ++healed.heals);
}

absl::StatusOr<std::map<std::string, Network::Traffic>> Network::Unplug() {
  std::map<std::string, Traffic> traffic;
  for (auto& [name, host] : hosts_) {
    const ChildExit exit = host.wire->Stop(kPatience);
    const std::string log = ReadFile(host.log).value_or("");
    long long passed[2], lost[2];
    const std::size_t last = log.rfind("passed");
    if (!exit.ok() || last == std::string::npos ||
        std::sscanf(log.c_str() + last, "passed %lld and %lld frames, lost %lld and %lld",
                    &passed[0], &passed[1], &lost[0], &lost[1]) != 4) {
      return absl::InternalError(
          absl::StrCat("the wire of ", name, " ended with ", exit.ToString(), ": ", log));
    }
    traffic[name] = {passed[0] + passed[1], lost[0] + lost[1]};
  }
  return traffic;
}

}  // namespace lockstep
