// wire: a link between two TAP devices, in both directions a Line. It is given the devices as open
// descriptors, and so may join network namespaces.
//
// SIGUSR1 cuts it, SIGUSR2 heals it; each is told of on standard output once it is in force. On
// SIGTERM it tells what it passed and lost, and ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <variant>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/mono_time.h"
#include "tests/hosts/wire/line.h"

namespace lockstep {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// Of a frame on a device whose MTU is 1500: with a header and a VLAN tag. More comes only from a
// device that leaves it to others to cut frames up, which these must not.
constexpr ssize_t kMostFrameBytes = 1518;

struct Flags {
  std::array<int, 2> devices = {-1, -1};
  LineQuality quality;
  std::uint64_t seed = 0;
};

std::variant<Flags, int> ParseFlags(int argc, char** argv) {
  CLI::App app("A link between two TAP devices that delays and loses frames.", "wire");
  Flags flags;
  std::string delay = "0", jitter = "0";
  app.add_option("--from", flags.devices[0], "Descriptor of one device")->required();
  app.add_option("--to", flags.devices[1], "Descriptor of the other")->required();
  app.add_option("--delay", delay, "Time that a frame takes")->capture_default_str();
  app.add_option("--jitter", jitter, "By how much that may be more or less")
      ->capture_default_str();
  app.add_option("--loss", flags.quality.loss, "Share of the frames that are lost, from 0 to 1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", flags.seed, "Of jitter and loss");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  for (const auto& [text, value] :
       {std::pair(&delay, &flags.quality.delay), std::pair(&jitter, &flags.quality.jitter)}) {
    if (!absl::ParseDuration(*text, value) || *value < absl::ZeroDuration()) {
      std::cerr << "wire: '" << *text << "' is no time, as 5ms\n";
      return kExitUsage;
    }
  }
  return flags;
}

class Wire {
 public:
  explicit Wire(const Flags& flags)
      : devices_(flags.devices),
        lines_{Line(flags.quality, flags.seed), Line(flags.quality, ~flags.seed)} {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&signals, signal);
    LOCKSTEP_CHECK(sigprocmask(SIG_BLOCK, &signals, nullptr) == 0);
    signals_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    for (const int fd : {devices_[0], devices_[1], signals_, timer_}) {
      epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
      LOCKSTEP_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
    }
  }

  // The exit code.
  int Run() {
    std::cout << "ready" << std::endl;
    while (!is_over_) {
      epoll_event event;
      const int count = epoll_wait(epoll_, &event, 1, -1);
      if (count < 0 && errno != EINTR) return Fail("epoll_wait");
      if (count == 1 && event.data.fd == signals_) HeedSignals();
      for (int i = 0; i < 2; ++i) {
        if (!Read(i)) return kExitFailure;
        Write(1 - i);
      }
      SetTimer();
    }
    std::cout << "passed " << lines_[0].passed() << " and " << lines_[1].passed()
              << " frames, lost " << lines_[0].lost() << " and " << lines_[1].lost() << std::endl;
    return 0;
  }

 private:
  static int Fail(const char* what) {
    std::cerr << "wire: " << what << ": " << strerror(errno) << "\n";
    return kExitFailure;
  }

  void HeedSignals() {
    for (signalfd_siginfo info; read(signals_, &info, sizeof(info)) == sizeof(info);) {
      if (info.ssi_signo == SIGTERM) {
        is_over_ = true;
        return;
      }
      const bool is_cut = info.ssi_signo == SIGUSR1;
      for (Line& line : lines_) is_cut ? line.Cut() : line.Heal();
      std::cout << (is_cut ? "cut" : "healed") << std::endl;
    }
  }

  // What has come to device `from`, into its line.
  bool Read(int from) {
    char frame[65536];
    ssize_t bytes;
    while ((bytes = read(devices_[from], frame, sizeof(frame))) > 0) {
      if (bytes > kMostFrameBytes) {
        std::cerr << "wire: a frame of " << bytes << " bytes, more than an MTU of 1500 allows; "
                  << "segmentation must not be left to this device\n";
        return false;
      }
      lines_[from].Enter(std::string(frame, bytes), clock_.Now());
    }
    if (errno == EAGAIN || errno == EINTR) return true;
    Fail("read");
    return false;
  }

  // What is through to device `to`, out of its line.
  void Write(int to) {
    while (const auto frame = lines_[1 - to].Leave(clock_.Now())) {
      // A device that takes no frame, as it is down or full, loses it, as a network does.
      [[maybe_unused]] const ssize_t written = write(devices_[to], frame->data(), frame->size());
    }
  }

  void SetTimer() {
    const MonoTime next = std::min(lines_[0].next(), lines_[1].next());
    if (next == timer_at_) return;
    timer_at_ = next;
    itimerspec when = {};  // zero: never
    if (next != MonoTime::Infinite()) {
      when.it_value = absl::ToTimespec(
          std::max(next - clock_.Now(), absl::Nanoseconds(1)));
    }
    timerfd_settime(timer_, 0, &when, nullptr);
  }

  const std::array<int, 2> devices_;
  const RealClock clock_;
  std::array<Line, 2> lines_;  // by the device at which frames come in
  int signals_ = -1;
  int timer_ = -1;
  MonoTime timer_at_ = MonoTime::Infinite();
  int epoll_ = -1;
  bool is_over_ = false;
};

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const auto parsed = lockstep::ParseFlags(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  return lockstep::Wire(std::get<lockstep::Flags>(parsed)).Run();
}
