// What chaos does to a job, and in which order. Pure; thread-compatible.
#ifndef LOCKSTEP_TESTS_CHAOS_FAULTS_H_
#define LOCKSTEP_TESTS_CHAOS_FAULTS_H_

#include <array>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/prng.h"

namespace lockstep {

enum class Fault {
  kKillWorker,       // SIGKILL; it is started again
  kKillCoordinator,  // SIGKILL; it is started again on its store
  kKillBoth,
  kPauseWorker,       // SIGSTOP for less than its lease
  kPauseCoordinator,  // likewise
  kStopWorker,        // SIGSTOP for longer than its lease: it comes back as a new member
  kDrainWorker,       // by the client; it is started again
  kChangePolicy,      // by the client
};

inline constexpr std::array kFaults = {
    Fault::kKillWorker,       Fault::kKillCoordinator, Fault::kKillBoth,    Fault::kPauseWorker,
    Fault::kPauseCoordinator, Fault::kStopWorker,      Fault::kDrainWorker, Fault::kChangePolicy,
};

// "kill a worker"
absl::string_view Describe(Fault fault);

// Faults in random order: each comes once before any comes again.
class FaultDeck {
 public:
  // `prng` outlives this.
  explicit FaultDeck(Prng* prng) : prng_(*prng) {}
  Fault Next();

 private:
  Prng& prng_;
  std::vector<Fault> left_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CHAOS_FAULTS_H_
