// Fabric: the network between workers, over which SimTransport moves bytes.
//
// Messages of one edge, from one worker to one other within one session, come in order. When a
// worker dies its peers have got what was under way up to some message, each another; they hear
// of it in their own time.
// Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_FABRIC_H_
#define LOCKSTEP_TESTS_SIM_FABRIC_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/scheduler.h"
#include "worker/memory/host_memory.h"
#include "worker/transport/transport.h"

namespace lockstep::sim {

struct FabricOptions {
  bool shares_parameters = false;  // as ranks on one host do
  bool tells_peers = true;         // an abort on one rank closes its connections
  bool fences = true;              // off: messages of all sessions are taken for each other's
};

class Fabric final {
 public:
  struct Edge {
    std::deque<std::string> came;
    absl::Status closed;           // the other end is known to be gone
    Process* receiver = nullptr;   // who waits for it
    MonoTime last;
    std::int64_t sent = 0;
    std::int64_t number = 0;       // of the next message to come
    std::int64_t cut = INT64_MAX;  // from this one on messages are lost
  };

  Fabric(Scheduler* scheduler, const FabricOptions& options)
      : scheduler_(*scheduler), options_(options) {}

  const FabricOptions& options() const { return options_; }
  Scheduler& scheduler() { return scheduler_; }
  // A name that no other session has.
  std::string NewSession() { return absl::StrCat("session ", ++sessions_); }
  // Lives as long as the fabric.
  Edge& edge(const std::string& session, const std::string& from, const std::string& to);
  void Send(const std::string& session, const std::string& from, const std::string& to,
            std::string bytes);
  // Behind what was sent.
  void Close(const std::string& session, const std::string& from, const std::string& to,
             const absl::Status& why);
  // Memory that the members of a session share.
  absl::StatusOr<std::shared_ptr<HostMemory>> Shared(const std::string& session, int index,
                                                     std::int64_t bytes);

  // Faults.
  void Died(const std::string& worker);
  void Block(const std::string& from, const std::string& to, MonoTime until);
  void Heal() { blocked_.clear(); }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // session, from, to

  MonoTime Arrival(const std::string& from, const std::string& to, Edge& edge);

  Scheduler& scheduler_;
  const FabricOptions options_;
  std::map<Key, Edge> edges_;
  std::map<std::pair<std::string, std::string>, MonoTime> blocked_;
  std::map<std::pair<std::string, int>, std::shared_ptr<HostMemory>> shared_;
  std::int64_t sessions_ = 0;
};

// Makes the transports of one process. It outlives them.
class SimTransportFactory final : public TransportFactory {
 public:
  SimTransportFactory(Fabric* fabric, Process* process) : fabric_(fabric), process_(process) {}
  std::string name() const override { return "simulated"; }
  absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                    const ExchangeEndpoint& exchange) override;

 private:
  Fabric* const fabric_;
  Process* const process_;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_FABRIC_H_
