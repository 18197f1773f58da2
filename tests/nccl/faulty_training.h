// Training of a few steps over the NCCL transport on fake GPUs, in which one call of NCCL
// or CUDA goes wrong: what there is to go wrong, and whether what follows is allowed.
//
// One run at a time.
#ifndef LOCKSTEP_TESTS_NCCL_FAULTY_TRAINING_H_
#define LOCKSTEP_TESTS_NCCL_FAULTY_TRAINING_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/transport/nccl/fake/fake_nccl.h"

namespace lockstep {

// What a healthy run of training calls, and what it makes.
struct HealthyRun {
  // By entry point and device.
  std::map<std::string, std::vector<int>> calls;
  std::vector<float> values;  // of all parameters and buffers, equal on all ranks
};

// Five steps of `ranks` ranks, from their forming to their leaving, some of them with a backward
// that is announced: buffer syncs by broadcast and by mean, a step that clips, a manual broadcast,
// and a last meeting of all.
// Errors: it was not healthy.
absl::StatusOr<HealthyRun> TrainUndisturbed(int ranks);

// Every fault of one call of a healthy run, at each index, on each device: each result code of
// NCCL or CUDA that the call might return, and that it never returns.
std::vector<FakeNccl::Injection> FaultsOf(const HealthyRun& healthy);

// How a run with a fault ended, if that is allowed.
enum class Ending {
  kUnharmed,  // on all ranks with OK and the right values
  kRefused,   // on all ranks with an error; a new epoch then made the right values
  // The same, and one rank's process would have ended by itself.
  kProcessEnded,
  kNotReached,  // the run was healthy, and had fewer such calls: some are made as often as it takes
};

// Trains with the fault; if that fails, once more in a new epoch on the same devices, without.
// Errors: Internal: what must not be: wrong values, an error on some ranks only, a code that is
//   not documented, a wait beyond all deadlines, a broken rule of NCCL, or memory that was
//   left; the text names the fault.
absl::StatusOr<Ending> TrainWith(const FakeNccl::Injection& fault, int ranks,
                                 const HealthyRun& healthy);

std::string Describe(const FakeNccl::Injection& fault);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_NCCL_FAULTY_TRAINING_H_
