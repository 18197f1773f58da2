// SyncedWorld: ranks that have joined an epoch, with one tensor of each kind, and
// values that tell the ranks apart. For tests.
#ifndef LOCKSTEP_WORKER_ENGINE_SYNCED_WORLD_H_
#define LOCKSTEP_WORKER_ENGINE_SYNCED_WORLD_H_

#include <cstdint>
#include <vector>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/engine/threaded_world.h"

namespace lockstep {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

// Nothing is due unless a test asks for it.
inline SyncPolicy Quiet() {
  return {.schedule = {.at_start = false, .every_forwards = 0},
          .broadcast_parameters_at_start = false};
}

inline void AddTensors(VectorModel& model, int rank) {
  const auto value = static_cast<float>(rank);
  model.AddParameter("fc.weight", Floats(20, value));
  model.AddFrozenParameter("embedding", Floats(4, value));
  model.AddBuffer<float>("bn.running_mean", {value, -value});
  model.AddBuffer<std::int64_t>("bn.num_batches_tracked", {100 + rank});
  model.AddBuffer<double>("cache", {value * 2, value});
}

class SyncedWorld {
 public:
  SyncedWorld(int size, const SyncPolicy& policy) : world_(size) {
    for (int rank = 0; rank < size; ++rank) AddTensors(world_.model(rank), rank);
    world_.Propose(policy);
    world_.Run([&](int rank) { LOCKSTEP_ASSERT_OK(world_.Join(rank, Sgd{})); });
  }
  ThreadedWorld* operator->() { return &world_; }

 private:
  ThreadedWorld world_;
};

inline Floats Mean(VectorModel& model) { return model.buffer<float>("bn.running_mean"); }
inline Ints Batches(VectorModel& model) { return model.buffer<std::int64_t>("bn.num_batches_tracked"); }
inline std::vector<double> Cache(VectorModel& model) { return model.buffer<double>("cache"); }

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_SYNCED_WORLD_H_
