// ThreadedWorld: the ranks of one job as threads of a test, each with its own
// model and ManualLink, over in-process transports.
//
// Set up by one thread; while Run() lasts each rank's thread uses its own rank's
// parts.
#ifndef LOCKSTEP_WORKER_ENGINE_THREADED_WORLD_H_
#define LOCKSTEP_WORKER_ENGINE_THREADED_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/mono_time.h"
#include "worker/engine/checkpoint_saver.h"
#include "worker/engine/engine.h"
#include "worker/engine/manual_link.h"
#include "worker/engine/vector_model.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {

class ThreadedWorld {
 public:
  explicit ThreadedWorld(int size) {
    for (int rank = 0; rank < size; ++rank) {
      members_.push_back("w" + std::to_string(rank));
      ranks_.push_back(std::make_unique<Rank>(&board_));
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<std::string>& members() const { return members_; }
  VectorModel& model(int rank) { return ranks_[rank]->model; }
  ManualLink& link(int rank) { return ranks_[rank]->link; }
  Engine& engine(int rank) { return *ranks_[rank]->engine; }
  // Null unless set before Join(): no checkpoints.
  std::shared_ptr<CheckpointSaver>& saver(int rank) { return ranks_[rank]->saver; }

  // To all ranks. The models must be complete.
  void Propose(const SyncPolicy& policy, Epoch epoch = Epoch(1)) {
    std::vector<int> all(size());
    std::iota(all.begin(), all.end(), 0);
    ProposeTo(all, policy, epoch);
  }
  // To some, who get other ranks: by their place in `some`.
  void ProposeTo(const std::vector<int>& some, const SyncPolicy& policy, Epoch epoch) {
    const auto plan = PlanShards(*model(0).Describe(), static_cast<int>(some.size()));
    LOCKSTEP_CHECK(plan.ok());
    std::vector<std::string> members;
    for (const int each : some) members.push_back(members_[each]);
    for (const int each : some) {
      link(each).Propose({.epoch = epoch,
                          .members = members,
                          .plan = *plan,
                          .revision = Revision(1),
                          .policy = policy,
                          .ready_timeout = absl::Seconds(60),
                          .optimizer_replicas = optimizer_replicas});
    }
  }

  EngineOptions OptionsOf(int rank) const {
    EngineOptions options = {.worker = members_[rank],
                             .join_timeout = absl::Seconds(60),
                             .operation_timeout = operation_timeout};
    options.saver = ranks_[rank]->saver;
    options.clock = clock;
    if (on_phase) {
      options.on_phase = [this, rank](StepPhase phase, std::int64_t step) {
        on_phase(rank, phase, step);
      };
    }
    return options;
  }

  absl::Status Join(int rank, const OptimizerConfig& optimizer) {
    return Join(rank, optimizer, &transports_);
  }
  absl::Status Join(int rank, const OptimizerConfig& optimizer, TransportFactory* transports) {
    auto engine = Engine::Join(OptionsOf(rank), optimizer, &model(rank), transports, &link(rank));
    if (!engine.ok()) return engine.status();
    ranks_[rank]->engine = *std::move(engine);
    return absl::OkStatus();
  }

  // Its next epoch; its engine is then another.
  absl::Status Rejoin(int rank, const OptimizerConfig& optimizer, TransportFactory* transports) {
    auto engine = Engine::Rejoin(*ranks_[rank]->engine, OptionsOf(rank), optimizer, transports);
    if (!engine.ok()) return engine.status();
    ranks_[rank]->engine = *std::move(engine);
    return absl::OkStatus();
  }

  // Runs `body(rank)` of all ranks side by side.
  void Run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  TransportFactory* transports() { return &transports_; }

  // Of each rank's engine: change it before Join().
  absl::Duration operation_timeout = absl::Seconds(60);
  std::shared_ptr<const Clock> clock = nullptr;  // null: the real one
  std::function<void(int rank, StepPhase phase, std::int64_t step)> on_phase = nullptr;
  int optimizer_replicas = 1;

 private:
  struct Rank {
    explicit Rank(EndpointBoard* board) : link(board) {}

    VectorModel model;
    ManualLink link;
    std::shared_ptr<CheckpointSaver> saver;
    std::unique_ptr<Engine> engine;  // before its model and link go
  };

  EndpointBoard board_;
  InProcessFactory transports_;
  std::vector<std::string> members_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_THREADED_WORLD_H_
