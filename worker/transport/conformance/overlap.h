// What transports that reduce gradients during backward must do beside the conformance
// suite. Instantiate it as that one; counters of traffic must count.
#ifndef LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_OVERLAP_H_
#define LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_OVERLAP_H_

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/transport/conformance/conformance.h"
#include "worker/transport/conformance/tensors.h"
#include "worker/transport/transport.h"

namespace lockstep {

class TransportOverlap : public TransportConformance {
 protected:
  // Several slices in each shard.
  static constexpr std::int64_t kElements = 12 * 130'000;

  // An arena of ones, and its shards.
  struct Gradients {
    Arena arena;
    std::vector<Shard> shards;
  };
  Gradients Allocate(Transport& transport) {
    auto arena = transport.Allocate(ArenaUse::kGradients, DType::kFloat32, kElements);
    EXPECT_THAT(arena, IsOk());
    std::ranges::fill(arena->floats(), 1.0f);
    return {*arena, EvenShards(kElements, world_size())};
  }
  absl::Status Begin(Transport& transport, const Gradients& gradients, float weight = 1) {
    const ArenaShards part = {gradients.arena, gradients.shards};
    return transport.BeginReduction({&part, 1}, weight);
  }
};

// Until `condition`, or for long.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (!condition()) {
    if (absl::Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CONFORMANCE_OVERLAP_H_
