// Ranks as processes, for what threads cannot show: a rank that is killed.
//
// Made before the test has threads, as each rank is a fork of it.
#ifndef LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_PROCESSES_H_
#define LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_PROCESSES_H_

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Bytes one way between processes; both ends live as long as this.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Send(const std::string& line) {
    const std::string bytes = line + "\n";
    EXPECT_EQ(write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // What came, if the line does not end within half a minute.
  std::string ReceiveLine() {
    std::string line;
    pollfd readable = {.fd = ends_[0], .events = POLLIN, .revents = 0};
    for (char c = 0; poll(&readable, 1, 30'000) == 1 && read(ends_[0], &c, 1) == 1 && c != '\n';) {
      line += c;
    }
    return line;
  }

 private:
  int ends_[2];
};

// Ranks forked from the test; each runs `body` and ends without clean-up.
class Processes {
 public:
  using MakeFactory = std::shared_ptr<TransportFactory> (*)();
  using Body = std::function<std::string(int rank, Transport& transport)>;

  // Each process makes a factory of its own.
  Processes(int world_size, MakeFactory make_factory, const Body& body)
      : endpoints_(world_size), formed_(world_size), results_(world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        RunRank(rank, world_size, make_factory, body);
        _exit(0);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  void AwaitFormed(int rank) { EXPECT_EQ(formed_[rank].ReceiveLine(), "formed"); }
  std::string Result(int rank) { return results_[rank].ReceiveLine(); }
  void Kill(int rank) { kill(pids_[rank], SIGKILL); }

 private:
  void RunRank(int rank, int world_size, MakeFactory make_factory, const Body& body) {
    Group group = {.epoch = Epoch(5), .rank = rank, .deadline = absl::Seconds(20)};
    for (int r = 0; r < world_size; ++r) group.members.push_back(absl::StrCat("w", r));
    const std::shared_ptr<TransportFactory> factory = make_factory();
    auto transport = factory->Create(
        group, [&](const std::optional<std::string>& mine) -> absl::StatusOr<std::string> {
          if (!mine.has_value()) return endpoints_[rank].ReceiveLine();
          for (int r = 1; r < world_size; ++r) endpoints_[r].Send(*mine);
          return *mine;
        });
    if (!transport.ok()) {
      formed_[rank].Send(transport.status().ToString());
      return;
    }
    formed_[rank].Send("formed");
    results_[rank].Send(body(rank, **transport));
  }

  std::vector<Pipe> endpoints_;
  std::vector<Pipe> formed_;
  std::vector<Pipe> results_;
  std::vector<pid_t> pids_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_PROCESSES_H_
