#include "tests/chaos/faults.h"

#include <cstddef>
#include <utility>

namespace lockstep {

absl::string_view Describe(Fault fault) {
  switch (fault) {
    case Fault::kKillWorker:
      return "kill a worker";
    case Fault::kKillCoordinator:
      return "kill the coordinator";
    case Fault::kKillBoth:
      return "kill the coordinator and a worker";
    case Fault::kPauseWorker:
      return "pause a worker";
    case Fault::kPauseCoordinator:
      return "pause the coordinator";
    case Fault::kStopWorker:
      return "stop a worker for longer than its lease";
    case Fault::kDrainWorker:
      return "drain a worker";
    case Fault::kChangePolicy:
      return "change the policy";
  }
  return "an unknown fault";
}

Fault FaultDeck::Next() {
  if (left_.empty()) {
    left_.assign(kFaults.begin(), kFaults.end());
    for (std::size_t i = left_.size(); i > 1; --i) std::swap(left_[i - 1], left_[prng_.Below(i)]);
  }
  const Fault next = left_.back();
  left_.pop_back();
  return next;
}

}  // namespace lockstep
