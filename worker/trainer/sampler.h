// Sampler: which images each rank trains on in each step.
//
// An epoch is a permutation of all images. A step goes on where the committed steps have
// ended: its ranks take consecutive batches from there. So every image comes once per
// epoch, over all ranks together, also where their number changes on the way. All ranks run
// the same number of steps: in the last one of an epoch some may have fewer samples or none.
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRAINER_SAMPLER_H_
#define LOCKSTEP_WORKER_TRAINER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

class Sampler {
 public:
  // `images` >= 1, `batch` >= 1 (of each rank).
  Sampler(std::int64_t images, std::int64_t batch, std::uint64_t seed);

  std::int64_t images() const { return static_cast<std::int64_t>(order_.size()); }
  // Where the number of ranks does not change.
  std::int64_t steps_per_epoch(int world_size) const;

  // The images of `rank` in the step behind those that were committed with `samples`
  // samples of all ranks; may be empty. Valid until the next call. Not a single one, unless
  // there is only one image or `batch` is 1: a batch norm could not train on it, so it
  // joins the batch before.
  std::span<const std::int64_t> Batch(std::int64_t samples, int rank);

 private:
  // Those of `images` images.
  std::int64_t BatchesOf(std::int64_t images) const;
  void Shuffle(std::int64_t epoch);

  const std::int64_t batch_;
  const std::uint64_t seed_;
  std::vector<std::int64_t> order_;  // of `epoch_`
  std::int64_t epoch_ = -1;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_SAMPLER_H_
