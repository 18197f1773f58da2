// Sampler: which images each rank trains on in each step.
//
// An epoch's permutation is cut into batches; the ranks of a step take
// consecutive ones. Every image comes once per epoch, over all ranks together.
// All ranks run the same number of steps: in the last one some may have fewer
// samples or none. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRAINER_SAMPLER_H_
#define LOCKSTEP_WORKER_TRAINER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Sampler {
 public:
  // `images` >= 1, `batch` >= 1 (of each rank), 0 <= `rank` < `world_size`.
  Sampler(std::int64_t images, std::int64_t batch, int rank, int world_size, std::uint64_t seed);

  std::int64_t steps_per_epoch() const;

  // The images of this rank in step `step` since training began (0 is the first);
  // may be empty. Valid until the next call. Not a single one, unless there is
  // only one image or `batch` is 1: a batch norm could not train on it, so it
  // joins the batch before.
  std::span<const std::int64_t> Batch(std::int64_t step);

 private:
  std::int64_t batches() const;
  void Shuffle(std::int64_t epoch);

  const std::int64_t batch_;
  const int rank_;
  const int world_size_;
  const std::uint64_t seed_;
  std::vector<std::int64_t> order_;  // of `epoch_`
  std::int64_t epoch_ = -1;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_SAMPLER_H_
